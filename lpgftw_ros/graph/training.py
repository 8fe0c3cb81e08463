"""The worker of the learner node: a session in its own thread; no ROS in here.

Commands are queued and take effect between two rollouts, so requests are answered at once.
"""

from collections.abc import Callable
from concurrent.futures import Future
import logging
from pathlib import Path
import queue
import threading
import time
from typing import Any, Literal, Protocol
import zlib

from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.graph.admission import RolloutGoal, RolloutKey
from lpgftw_ros.learning.adaptive.recognise import Verdict
from lpgftw_ros.learning.arrays import Batch
from lpgftw_ros.learning.policies import TaskFactors
from lpgftw_ros.runs.lifelong import FINAL_STAGES
from lpgftw_ros.runs.session import Session
from lpgftw_ros.runs.visits import Collect, Done, Idle, Request

log = logging.getLogger(__name__)
PROBES = 700_000
"""First number of the probes within a visit."""
UNNAMED = 1 << 48
"""Where the numbers of policies begin that are tried in a task without a name."""
Mode = Literal['idle', 'training', 'evaluating', 'acting', 'paused']


class Interrupted(Exception):
    """The worker is closing; the rollout was abandoned."""


class GivenUp(LpgftwError):
    """The rollout is no longer needed."""


def _wanted() -> bool:
    return False


class Outside(Protocol):
    """What the worker needs of the graph around it."""

    def announce(self, worker: 'TrainingWorker') -> None:
        """Publish what changed: knowledge, policy in training, active task, status."""

    def collect(
        self,
        goal: RolloutGoal,
        in_background: Callable[[], None],
        given_up: Callable[[], bool] = _wanted,
    ) -> Batch:
        """Ask the bridge for a rollout, run `in_background` meanwhile and wait for the batch.

        If the bridge or the policy is lost, it waits and asks again. Raises `Interrupted` when
        closing, and `GivenUp` once `given_up` is true.
        """


class TrainingWorker:
    """Drives a session by rollouts of the graph."""

    def __init__(self, session: Session, outside: Outside, run_id: str = '') -> None:
        self.session, self._run_id = session, run_id
        self.state = 'idle'
        self.message = ''
        self.mode: Mode = 'idle'
        self.active = ''
        self.paused = False
        self.failed: str | None = None
        self.finished = threading.Event()
        self.last_seconds = 0.0
        self.knowledge = session.learner.knowledge()
        """The last published state; safe to read from any thread."""
        self.probe: Collect | None = None
        """The learner's probe that is being answered."""
        self._outside = outside
        self._commands: queue.Queue[tuple[Callable[[], Any], Future[Any]]] = queue.Queue()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Publish the state and answer the session's requests; works after `close` too."""
        if self._thread is not None:
            self._thread.join()
        self._closing.clear()
        self._thread = threading.Thread(target=self._run, name='training', daemon=True)
        self._thread.start()

    def close(self, timeout: float | None = 2.0) -> None:
        """Stop after the current work, within a time-out; finished iterations are on disk."""
        self._closing.set()
        self._commands.put((lambda: None, Future()))
        if self._thread is not None:
            self._thread.join(timeout)

    @property
    def closing(self) -> bool:
        """Whether the worker was told to stop."""
        return self._closing.is_set()

    @property
    def policy_version(self) -> int:
        """Number of the policy in training, or 0; a repeated iteration has the same number."""
        learner, visit = self.session.learner, self.session.lifelong.current
        if self.probe is not None and self.probe.visit < 0:
            assert self.probe.factors is not None
            return UNNAMED + zlib.crc32(self.probe.factors.residual.tobytes())
        if visit is not None and self.probe is not None:
            return (visit.number + 1) * 1_000_000 + PROBES + visit.probes
        if learner.running is None or visit is None:
            return 0
        return (visit.number + 1) * 1_000_000 + learner.iteration + 1

    @property
    def trial(self) -> tuple[str, TaskFactors] | None:
        """The policy to sample with, and its task: a probe's, else the one in training."""
        if self.probe is not None and self.probe.factors is not None:
            return self.probe.task, self.probe.factors
        learner = self.session.learner
        return None if learner.running is None else (learner.running, learner.factors())

    def do(self, command: Callable[[], Any]) -> 'Future[Any]':
        """Queue a command; it runs in the worker between two rollouts."""
        future: Future[Any] = Future()
        self._commands.put((command, future))
        return future

    # -- commands, run by the worker itself ----------------------------------------------

    def switch(self, task: str, learn: bool, iterations: int = 0, trajectories: int = 0) -> None:
        """Make a task active; a running one is parked."""
        if learn:
            self.session.lifelong.learn(task, iterations, trajectories)
        else:
            self.session.lifelong.hold()
        self.active, self.paused = task, False
        self.mode = 'training' if learn else 'acting'
        self.message = f'{"learning" if learn else "acting with"} {task}'
        self.session.save()

    def pause(self, paused: bool) -> None:
        """Stop asking for rollouts, or continue."""
        self.paused = paused
        if not paused:
            self.session.lifelong.release()
        self.message = 'paused' if paused else 'resumed'

    def stop(self) -> None:
        """Park the running task and empty the queue."""
        self.session.lifelong.hold()
        self.session.lifelong.queue.clear()
        self.session.save()
        self.message = 'stopped; the running task is parked'

    def give_up(self, task: str) -> None:
        """Park the running task; a revisit is dropped and undone."""
        lifelong = self.session.lifelong
        if lifelong.current is None or lifelong.current.task != task:
            return
        if any(v.task == task and v.state == 'finished' for v in lifelong.visits):
            lifelong.drop()
        else:
            lifelong.set_aside()
        self.message = f'{task} was given up'
        self.session.save()

    def save(self, path: Path) -> None:
        """Write everything learned to a file."""
        self.session.export_knowledge(path)
        self.message = f'saved {path}'

    def load(self, path: Path) -> None:
        """Replace everything learned, and publish it before the request is answered."""
        self.session.import_knowledge(path)
        self.message = f'loaded {path}'
        self._outside.announce(self)

    def evaluate(
        self,
        task: str,
        n: int,
        seed: int,
        explore: bool,
        given_up: Callable[[], bool] = _wanted,
    ) -> Batch:
        """Run the current policy of a task, without learning."""
        if given_up():
            raise GivenUp('given up before it began')
        learner = self.session.learner
        knowledge, running = learner.knowledge(), learner.running == task
        if not running:
            knowledge.policy(task)
        before = (self.mode, self.active)
        self.mode, self.active, self.state = 'evaluating', task, 'evaluating'
        number = (1 << 62) | (seed & (2**61 - 1))
        version = self.policy_version if running else 0
        key = RolloutKey(self._run_id, task, number, seed, explore, version, knowledge.version)
        goal = RolloutGoal(key, n)
        try:
            self._outside.announce(self)
            return self._outside.collect(goal, lambda: None, given_up)
        finally:
            self.mode, self.active = before

    def recognise(self, task: str, given_up: Callable[[], bool] = _wanted) -> Verdict:
        """Tell which known task the environment of `task` is, by rollouts of known policies."""
        before = (self.mode, self.active)

        def collect(request: Collect) -> Batch:
            self.probe = request
            self.mode, self.active, self.state = 'evaluating', task, 'evaluating'
            version, knowledge = self.policy_version, self.session.learner.knowledge()
            key = RolloutKey(
                self._run_id, task, version, request.seed, False, version, knowledge.version
            )
            self._outside.announce(self)
            goal = RolloutGoal(key, request.n_trajectories)
            return self._outside.collect(goal, lambda: None, given_up)

        try:
            found = self.session.lifelong.recognise(task, collect)
        finally:
            self.probe = None
            self.mode, self.active = before
        self.session.save()
        self.message = f'{task} is {found}'
        return found

    # -- the loop ------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._outside.announce(self)
            while not self._closing.is_set():
                self._obey(block=False)
                request = self.session.next_request()
                if self.paused or isinstance(request, Idle | Done):
                    self._rest(request)
                else:
                    self._answer(request)
        except Interrupted:
            pass
        except LpgftwError as error:
            self._fail(str(error))
        except Exception as error:
            log.exception('the learner failed')
            self._fail(f'{type(error).__name__}: {error}')

    def _fail(self, text: str) -> None:
        self.failed, self.state, self.message = text, 'failed', text
        self._outside.announce(self)
        self.finished.set()

    def _obey(self, *, block: bool) -> None:
        """Run the queued commands."""
        while True:
            try:
                command, future = self._commands.get(block=block, timeout=0.2 if block else None)
            except queue.Empty:
                return
            block = False
            try:
                future.set_result(command())
            except Interrupted:
                future.set_exception(LpgftwError('the learner is shutting down'))
                raise
            except Exception as error:
                self.message = f'failed: {error}'
                log.warning('a command failed: %s', error)
                future.set_exception(error)
            self._outside.announce(self)

    def _rest(self, request: Request | Idle | Done) -> None:
        """Wait for a command."""
        done = isinstance(request, Done)
        complete = done and self.session.lifelong.complete
        state = 'paused' if self.paused else 'finished' if complete else 'idle'
        if state != self.state:
            self.session.background()
            if done:
                self.session.write_summary()
            self.state = state
            if self.paused:
                self.mode = 'paused'
            elif self.mode != 'acting':
                self.mode = 'idle'
            self._outside.announce(self)
        if done and not self.paused:
            self.finished.set()
        self._obey(block=True)

    def _answer(self, request: Request) -> None:
        learns = isinstance(request, Collect)
        self.probe = request if isinstance(request, Collect) and request.factors else None
        self.mode = 'training' if request.running or learns else 'evaluating'
        self.active = request.task
        self.state = 'sampling' if learns else 'evaluating'
        self.finished.clear()
        key = RolloutKey(
            run_id=self._run_id,
            task=request.task,
            rollout=rollout_number(self.session, request),
            seed=request.seed,
            explore=request.explore,
            policy_version=self.policy_version if request.running or self.probe else 0,
            knowledge_version=self.session.learner.knowledge().version,
        )
        goal = RolloutGoal(key, request.n_trajectories)
        self._outside.announce(self)
        started = time.perf_counter()
        batch = self._outside.collect(goal, self.session.background)
        self.last_seconds = time.perf_counter() - started
        self.state, self.probe = 'learning' if learns else 'evaluating', None
        self.session.feed(batch, self.last_seconds)
        self._outside.announce(self)


def rollout_number(session: Session, request: Request) -> int:
    """Return the number of a rollout; a request keeps its number after a restart."""
    visit = session.lifelong.visits[request.visit]
    if request.stage.kind == 'probe':
        return (request.visit + 1) * 1_000_000 + PROBES + visit.probes
    position = visit.position
    final = 500_000 if request.stage.name in FINAL_STAGES else 0
    return (request.visit + 1) * 1_000_000 + final + 2 * position + int(request.explore)
