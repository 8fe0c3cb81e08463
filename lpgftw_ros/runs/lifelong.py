"""The lifelong loop, without input or output of its own.

`next_request` says which trajectories are needed next; the driver (one process, or the ROS
graph) samples them and calls `feed`. Between the two, `run_background` may run in
another thread: it fits the value function while the next rollout is sampled.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any
import zlib

from lpgftw_ros.errors import LearnerMisuse
from lpgftw_ros.learning.adaptive.recognise import Verdict
from lpgftw_ros.learning.arrays import Batch
from lpgftw_ros.learning.learner import Learner, Probe
from lpgftw_ros.learning.policies import PolicySnapshot
from lpgftw_ros.learning.randomness import derive_seed, Purpose
from lpgftw_ros.runs.config import RunConfig
from lpgftw_ros.runs.records import iteration_row, probe_row, score, update_row
from lpgftw_ros.runs.stages import evaluations, MATRIX
from lpgftw_ros.runs.visits import (
    chosen_evaluations,
    Collect,
    Done,
    Evaluate,
    evaluation_seed,
    evaluation_stage,
    Idle,
    program_length,
    Request,
    Stage,
    stage_at,
    Visit,
    VisitState,
)

FINAL_STAGES = tuple(one.name for one in evaluations('end'))


class Lifelong:
    """Learn one task after another: improve, fold in, measure."""

    def __init__(
        self, config: RunConfig, learner: Learner, deterministic: Mapping[str, bool]
    ) -> None:
        """Queue the tasks of `config`; `deterministic` names the tasks with one reset state."""
        self.config = config
        self.learner = learner
        self.visits: list[Visit] = []
        self.sequence: list[str] = list(config.tasks)
        """All tasks of the lifetime, including those added later."""
        self.queue: list[str] = list(config.tasks)
        self.held = False
        self.total_steps = 0
        self.probe_root = config.loop.seed
        """Root of the random numbers of all probes: the seed of the run that began to measure."""
        self._deterministic = deterministic
        self._current: int | None = None
        self._unfitted: dict[str, Any] | None = None
        self._rows: list[dict[str, Any]] = []
        self._iteration_done = False
        self._base_changed = False
        self._in_series = False  # probes of a series are answered, but not its last one

    # -- what is needed next -------------------------------------------------------------

    def next_request(self) -> Request | Idle | Done:
        """Return what to sample next; the same answer until `feed` or a command."""
        if self.held:
            return Idle(held=True)
        if self._current is None and self.queue:
            self._begin(self.queue.pop(0))
        if self._current is not None:
            visit = self.visits[self._current]
            probe = self.learner.wants()
            if probe is not None:
                return self.probe_request(probe, visit.number)
            return self._stage_request(visit)
        if not self.visits:
            return Idle(held=False)
        return self._final_request() or Done()

    @property
    def done(self) -> bool:
        """Whether nothing is left to do."""
        busy = self._current is not None or bool(self.queue)
        return bool(self.visits) and not busy and self._final_request() is None

    @property
    def complete(self) -> bool:
        """Whether every task of the sequence is learned and none is parked."""
        learned = {visit.task for visit in self.visits if visit.state == 'finished'}
        parked = any(visit.state == 'parked' for visit in self.visits)
        return self.done and not parked and set(self.sequence) <= learned

    def policy(self, request: Request) -> PolicySnapshot:
        """Return the policy that answers a request."""
        knowledge = self.learner.knowledge()
        if isinstance(request, Collect) and request.factors is not None:
            return knowledge.compose(request.factors)
        if request.running:
            return knowledge.compose(self.learner.factors())
        return knowledge.policy(request.task)

    def feed(self, batch: Batch, sampling_seconds: float = 0.0) -> None:
        """Take the trajectories of the last request."""
        self.run_background()
        request = self.next_request()
        if isinstance(request, Idle | Done):
            raise LearnerMisuse('trajectories were fed without a request')
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
        row.update(report.measures)
        row['timing']['value'] = report.seconds
        self._rows.append(row)
        self._iteration_done = True

    # -- what the driver writes -----------------------------------------------

    def take_rows(self) -> list[dict[str, Any]]:
        """Return the metrics rows that became complete since the last call."""
        rows, self._rows = self._rows, []
        return rows

    @property
    def changes(self) -> tuple[bool, bool]:
        """Whether to save an iteration, and whether to save the shared knowledge.

        Nothing is saved while a value fit is due or a series of probes is half answered: their
        data are not part of the state, and what the series took would be counted twice.
        """
        whole = self._unfitted is None and not self._in_series
        return whole and self._iteration_done, whole and self._base_changed

    def forget_changes(self) -> None:
        """Mark everything as saved."""
        self._iteration_done = self._base_changed = False

    def progress(self) -> dict[str, Any]:
        """Return where the loop stands, as plain values."""
        return {
            'visits': [visit.to_dict() for visit in self.visits],
            'queue': list(self.queue),
            'sequence': list(self.sequence),
            'current': self._current,
            'held': self.held,
            'total_steps': self.total_steps,
            'probe_root': self.probe_root,
        }

    def restore(self, progress: Mapping[str, Any]) -> None:
        """Restore what `progress` returned; the learner's state is loaded separately."""
        self.visits = [Visit.from_dict(visit) for visit in progress['visits']]
        self.queue = list(progress['queue'])
        self.sequence = list(progress.get('sequence', self.config.tasks))
        self._current = progress['current']
        self.held = progress['held']
        self.total_steps = progress['total_steps']
        self.probe_root = progress.get('probe_root', self.config.loop.seed)

    # -- commands: between two iterations only -------------------------------------------

    @property
    def current(self) -> Visit | None:
        """The visit in training."""
        return None if self._current is None else self.visits[self._current]

    def learn(self, task: str, iterations: int = 0, trajectories: int = 0) -> None:
        """Learn this task now; a running one is parked and comes next in the queue.

        Numbers of iterations and trajectories that differ from the settings hold for this visit
        only.
        """
        self.held = False
        if self.current is not None and self.learner.running == task:
            plannable = self.current.plannable
            self.current.aim_at(iterations, trajectories)
            if plannable:
                self.current.follow(self.learner.plan)
            return
        self._set_back()
        self._begin(task, iterations, trajectories)
        if task in self.queue:
            self.queue.remove(task)

    def extend(self, tasks: Iterable[str]) -> None:
        """Append tasks to the queue; a task learned before is a revisit."""
        added = list(tasks)
        self.sequence += added
        self.queue += added
        self._iteration_done = True

    def recognise(self, task: str, collect: Callable[[Collect], Batch]) -> Verdict:
        """Tell which known task the environment of `task` is; its name is not used.

        `collect` answers requests. The steps count in the total.
        """
        inquiry = self.learner.recognise(task)
        while (probe := inquiry.probe) is not None:
            batch = collect(self.probe_request(probe, -1, inquiry.against))
            inquiry.answer(batch)
            self.total_steps += batch.n_steps
        self._iteration_done = True
        return inquiry.verdict

    def hold(self) -> None:
        """Park the running task and wait; `release` goes on with it."""
        self._set_back()
        self.held = self._iteration_done = True  # to be saved, also if nothing was running

    def release(self) -> None:
        """Go on with the queue."""
        self.held = False

    def drop(self) -> None:
        """Cancel the running visit; a revisited task returns to its old state."""
        self._leave('cancelled', self.learner.cancel_task)

    def set_aside(self) -> None:
        """Park the running task; the queue goes on without it."""
        self._leave('parked', self.learner.park_task)

    def forget_progress(self, probe_root: int) -> None:
        """Note that the knowledge was replaced: no parked visit can continue.

        What the new knowledge measured is compared with later probes, so these go on with the
        random numbers it was measured with.
        """
        self.probe_root = probe_root
        for visit in self.visits:
            if visit.state == 'parked':
                visit.state = 'cancelled'
            visit.forget(FINAL_STAGES)
        self._in_series = False
        self._iteration_done = self._base_changed = True

    def _set_back(self) -> None:
        """Park the running task; it comes next in the queue."""
        running = self.learner.running
        self.set_aside()
        if running is not None:
            self.queue.insert(0, running)

    def _leave(self, state: VisitState, leave_task: Callable[[], None]) -> None:
        """End the running visit; if its task is folded in, only evaluations are lost."""
        self.run_background()
        if self._current is None:
            return
        if self.learner.running is None:
            state = 'finished'
        else:
            leave_task()
        self.visits[self._current].state = state
        self._current = None
        self._in_series = False
        self._base_changed = True

    # -- one visit -----------------------------------------------------------------------

    def _begin(self, task: str, iterations: int = 0, trajectories: int = 0) -> None:
        """Start a visit, or continue a parked one."""
        parked = [v for v in self.visits if v.task == task and v.state == 'parked']
        if parked:
            visit = parked[0]
        else:
            loop = self.config.loop
            visit = Visit(len(self.visits), task, loop.iterations, loop.trajectories, known=())
        plannable = visit.plannable
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
        if plannable:  # the request, or what the learner owes, may have changed
            visit.follow(self.learner.plan)
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

    def probe_request(self, probe: Probe, visit: int, numbers_of: str = '') -> Collect:
        """Return the request of a probe; all probes of a task share their random numbers.

        `numbers_of` names another task whose random numbers are taken.
        """
        path = zlib.crc32((numbers_of or probe.task).encode()), int(probe.explore)
        seed = derive_seed(self.probe_root, Purpose.PROBE, *path)
        stage = Stage('probe', 'probe', task=probe.task, explore=probe.explore, running=False)
        return Collect(
            probe.task,
            probe.n_trajectories,
            seed,
            visit,
            stage,
            explore=probe.explore,
            running=False,
            factors=probe.factors,
        )

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
            for one in chosen_evaluations(self.config, 'end'):
                if one.name not in visit.scores:
                    return self._evaluation(visit.task, visit.number, evaluation_stage(one))
        return None

    def _record_score(self, request: Evaluate, batch: Batch) -> None:
        result, visit = score(batch), self.visits[request.visit]
        if request.stage.name in FINAL_STAGES:
            for other in self.visits:
                if other.task == request.task:
                    other.scores[request.stage.name] = result
            return
        if request.stage.name == MATRIX:
            visit.matrix[request.task] = result
        else:
            visit.scores[request.stage.name] = result
        self._advance(visit)

    def _learn(self, visit: Visit, stage: Stage, batch: Batch, sampling_seconds: float) -> None:
        visit.steps += batch.n_steps
        self.total_steps += batch.n_steps
        if stage.kind == 'probe':
            self._learn_probe(visit, batch, sampling_seconds)
            return
        if stage.kind == 'iterate':
            report = self.learner.improve(batch)
            row = iteration_row(visit, stage, batch, report, self.total_steps)
            self._base_changed |= report.knowledge_updated
            self._unfitted = row
            visit.follow(self.learner.plan)
        else:
            finish = self.learner.finish_task(batch)
            row = update_row(visit, batch, finish, self.total_steps)
            visit.columns = finish.columns
            self._rows.append(row)
            self._iteration_done = self._base_changed = True
        row['timing']['sampling'] = sampling_seconds
        self._advance(visit)

    def _learn_probe(self, visit: Visit, batch: Batch, sampling_seconds: float) -> None:
        """Pass on a probe; the state is saved when the last probe of a series is settled."""
        probe = self.learner.wants()
        assert probe is not None
        found = self.learner.probed(batch)
        visit.probes += 1
        row = probe_row(visit, probe, batch, found, self.total_steps)
        row['timing']['sampling'] = sampling_seconds
        self._rows.append(row)
        self._in_series = self.learner.wants() is not None
        if not self._in_series:
            self._iteration_done = self._base_changed = True

    def _advance(self, visit: Visit) -> None:
        visit.position += 1
        if visit.position == program_length(self.config, visit):
            visit.state = 'finished'
            self._current = None
