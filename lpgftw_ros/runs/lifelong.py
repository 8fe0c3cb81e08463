"""The lifelong loop, once, without input or output of its own.

`next_request` says which trajectories are needed next; whoever drives the loop (a process of its
own or the ROS graph) samples them and calls `feed`. Between the two, `run_background` may run in
another thread: it fits the value function while the next rollout is sampled.
"""

from collections.abc import Callable, Mapping
from typing import Any

from lpgftw_ros.errors import LearnerMisuse
from lpgftw_ros.learning.batch import Batch
from lpgftw_ros.learning.learner import Learner
from lpgftw_ros.learning.policies import PolicySnapshot
from lpgftw_ros.learning.randomness import derive_seed, Purpose
from lpgftw_ros.runs.config import RunConfig
from lpgftw_ros.runs.records import iteration_row, score, update_row
from lpgftw_ros.runs.requests import Collect, Done, Evaluate, Idle, Request
from lpgftw_ros.runs.visits import (
    evaluation_seed,
    program_length,
    Stage,
    stage_at,
    Visit,
    VisitState,
)

FINAL_STAGES = ('final', 'final_stochastic')


class Lifelong:
    """Meet one task after another: improve, fold in, measure."""

    def __init__(
        self, config: RunConfig, learner: Learner, deterministic: Mapping[str, bool]
    ) -> None:
        """Queue the tasks of `config`; `deterministic` says which tasks always reset alike."""
        self.config = config
        self.learner = learner
        self.visits: list[Visit] = []
        self.queue: list[str] = list(config.tasks)
        self.held = False
        self.total_steps = 0
        self._deterministic = deterministic
        self._current: int | None = None
        self._unfitted: dict[str, Any] | None = None
        self._rows: list[dict[str, Any]] = []
        self._iteration_done = False
        self._base_changed = False

    # -- what is needed next -------------------------------------------------------------

    def next_request(self) -> Request | Idle | Done:
        """Return what to sample next; the same answer until `feed` or a command."""
        if self.held:
            return Idle(held=True)
        if self._current is None and self.queue:
            self._begin(self.queue.pop(0))
        if self._current is not None:
            return self._stage_request(self.visits[self._current])
        if not self.visits:
            return Idle(held=False)
        return self._final_request() or Done()

    @property
    def done(self) -> bool:
        """Whether nothing is left to do: all that was begun is measured."""
        busy = self._current is not None or bool(self.queue)
        return bool(self.visits) and not busy and self._final_request() is None

    @property
    def complete(self) -> bool:
        """Whether also every task of the sequence is learned, and none is parked."""
        learned = {visit.task for visit in self.visits if visit.state == 'finished'}
        parked = any(visit.state == 'parked' for visit in self.visits)
        return self.done and not parked and set(self.config.tasks) <= learned

    def policy(self, request: Request) -> PolicySnapshot:
        """Return the policy a request is to be answered with."""
        knowledge = self.learner.knowledge()
        if request.running:
            return knowledge.compose(self.learner.factors())
        return knowledge.policy(request.task)

    def feed(self, batch: Batch, sampling_seconds: float = 0.0) -> None:
        """Take the trajectories of the last request."""
        self.run_background()
        request = self.next_request()
        if isinstance(request, Idle | Done):
            raise LearnerMisuse('trajectories were fed that nobody asked for')
        if isinstance(request, Evaluate):
            self._record_score(request, batch)
        else:
            self._learn(self.visits[request.visit], request.stage, batch, sampling_seconds)

    def run_background(self) -> None:
        """Do what may overlap with sampling: fit the value function to the last batch."""
        if self._unfitted is None:
            return
        row, self._unfitted = self._unfitted, None
        report = self.learner.fit_values()
        row['value_error'] = report.error_after
        row['timing']['value'] = report.seconds
        self._rows.append(row)
        self._iteration_done = True

    # -- what the driver has to write down -----------------------------------------------

    def take_rows(self) -> list[dict[str, Any]]:
        """Return the metrics rows that became complete since the last call."""
        rows, self._rows = self._rows, []
        return rows

    def take_changes(self) -> tuple[bool, bool]:
        """Return whether an iteration and whether the shared knowledge is to be saved."""
        changes = (self._iteration_done, self._base_changed)
        self._iteration_done = self._base_changed = False
        return changes

    def progress(self) -> dict[str, Any]:
        """Return where the loop stands, as plain values."""
        return {
            'visits': [visit.to_dict() for visit in self.visits],
            'queue': list(self.queue),
            'current': self._current,
            'held': self.held,
            'total_steps': self.total_steps,
        }

    def restore(self, progress: Mapping[str, Any]) -> None:
        """Take up what `progress` described; the learner's state is loaded separately."""
        self.visits = [Visit.from_dict(visit) for visit in progress['visits']]
        self.queue = list(progress['queue'])
        self._current = progress['current']
        self.held = progress['held']
        self.total_steps = progress['total_steps']

    # -- commands: between two iterations only -------------------------------------------

    @property
    def current(self) -> Visit | None:
        """The visit in training."""
        return None if self._current is None else self.visits[self._current]

    def learn(self, task: str, iterations: int = 0, trajectories: int = 0) -> None:
        """Learn this task now; a running one is parked and comes next in the queue.

        Other numbers of iterations and trajectories than configured hold for this visit.
        """
        self.held = False
        if self.current is not None and self.learner.running == task:
            self.current.aim_at(iterations, trajectories)
            return
        self._set_back()
        self._begin(task, iterations, trajectories)
        if task in self.queue:
            self.queue.remove(task)

    def hold(self) -> None:
        """Park the running task and wait; `release` goes on with it."""
        self._set_back()
        self.held = self._iteration_done = True  # to be saved, also if nothing was running

    def release(self) -> None:
        """Go on with the queue."""
        self.held = False

    def drop(self) -> None:
        """Cancel the running visit; a revisited task is as before."""
        self._leave('cancelled', self.learner.cancel_task)

    def set_aside(self) -> None:
        """Park the running task; the queue goes on without it."""
        self._leave('parked', self.learner.park_task)

    def forget_progress(self) -> None:
        """Note that all that was learned is another's now: no parked visit can go on."""
        for visit in self.visits:
            if visit.state == 'parked':
                visit.state = 'cancelled'
            visit.forget(FINAL_STAGES)

    def _set_back(self) -> None:
        """Park the running task; it comes next in the queue."""
        running = self.learner.running
        self.set_aside()
        if running is not None:
            self.queue.insert(0, running)

    def _leave(self, state: VisitState, leave_task: Callable[[], None]) -> None:
        """End the running visit; one whose task is folded in only lacks measurements."""
        self.run_background()
        if self._current is None:
            return
        if self.learner.running is None:
            state = 'finished'
        else:
            leave_task()
        self.visits[self._current].state = state
        self._current = None
        self._base_changed = True

    # -- one visit -----------------------------------------------------------------------

    def _begin(self, task: str, iterations: int = 0, trajectories: int = 0) -> None:
        """Start a visit, or go on with a parked one."""
        parked = [v for v in self.visits if v.task == task and v.state == 'parked']
        if parked:
            visit = parked[0]
        else:
            loop = self.config.loop
            visit = Visit(len(self.visits), task, loop.iterations, loop.trajectories, known=())
        visit.aim_at(iterations, trajectories)
        if visit.finished_iterations < visit.iterations or not visit.known:
            finished = [v.task for v in self.visits if v.state == 'finished']
            visit.known = tuple(dict.fromkeys((*finished, task)))
        seed = derive_seed(self.config.loop.seed, Purpose.POLICY_INIT, visit.number)
        self.learner.start_task(task, seed=seed)  # may refuse
        if not parked:
            self.visits.append(visit)
        visit.state = 'running'
        self._current = visit.number
        for other in self.visits:
            other.forget(FINAL_STAGES)

    def _stage_request(self, visit: Visit) -> Request:
        stage = stage_at(self.config, visit)
        if stage.kind == 'evaluate':
            return self._evaluation(stage.task or visit.task, visit.number, stage)
        if stage.kind == 'update':
            seed = derive_seed(self.config.loop.seed, Purpose.UPDATE, visit.number)
            count = self.config.loop.update_trajectories
        else:
            path = (visit.number, stage.iteration)
            seed = derive_seed(self.config.loop.seed, Purpose.TRAIN, *path)
            count = visit.trajectories
        return Collect(visit.task, count, seed, visit.number, stage)

    def _evaluation(self, task: str, visit: int, stage: Stage) -> Evaluate:
        seed = evaluation_seed(self.config.loop.seed, task)
        if stage.explore:
            episodes = self.config.loop.stochastic_episodes
        else:
            episodes = 1 if self._deterministic[task] else self.config.loop.evaluation_episodes
        return Evaluate(task, episodes, seed, visit, stage, stage.explore, stage.running)

    def _final_request(self) -> Evaluate | None:
        for visit in self.visits:
            if visit.state != 'finished' or self.learner.phase(visit.task) != 'finished':
                continue
            for name in FINAL_STAGES:
                explore = name == 'final_stochastic'
                if explore and not self.config.loop.stochastic_episodes:
                    continue
                if name not in visit.scores:
                    stage = Stage(name, 'evaluate', explore=explore, running=False)
                    return self._evaluation(visit.task, visit.number, stage)
        return None

    def _record_score(self, request: Evaluate, batch: Batch) -> None:
        result, visit = score(batch), self.visits[request.visit]
        if request.stage.name in FINAL_STAGES:
            for other in self.visits:
                if other.task == request.task:
                    other.scores[request.stage.name] = result
            return
        if request.stage.name == 'matrix':
            visit.matrix[request.task] = result
        else:
            visit.scores[request.stage.name] = result
        self._advance(visit)

    def _learn(self, visit: Visit, stage: Stage, batch: Batch, sampling_seconds: float) -> None:
        visit.steps += batch.n_steps
        self.total_steps += batch.n_steps
        if stage.kind == 'iterate':
            report = self.learner.improve(batch)
            row = iteration_row(visit, stage, batch, report, self.total_steps)
            self._base_changed |= report.knowledge_updated
            self._unfitted = row
        else:
            finish = self.learner.finish_task(batch)
            row = update_row(visit, batch, finish, self.total_steps)
            visit.columns = finish.columns
            self._rows.append(row)
            self._iteration_done = self._base_changed = True
        row['timing']['sampling'] = sampling_seconds
        self._advance(visit)

    def _advance(self, visit: Visit) -> None:
        visit.position += 1
        if visit.position == program_length(self.config, visit):
            visit.state = 'finished'
            self._current = None
