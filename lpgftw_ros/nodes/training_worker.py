"""The learner node's heavy half: a session in a thread of its own; no ROS in here.

Commands are queued and take effect between two rollouts, so whoever asks is answered at once.
"""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
import logging
from pathlib import Path
import queue
import threading
import time
from typing import Any, Literal, Protocol

from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.learning.batch import Batch
from lpgftw_ros.runs.requests import Collect, Done, Idle, Request
from lpgftw_ros.runs.session import Session

log = logging.getLogger(__name__)
Mode = Literal['idle', 'training', 'evaluating', 'acting', 'paused']


@dataclass(frozen=True, slots=True)
class RolloutGoal:
    """Trajectories asked of a bridge; the same goal gives the same trajectories."""

    task: str
    n_trajectories: int
    rollout_id: int
    seed: int
    explore: bool
    policy_version: int
    knowledge_version: int


class Interrupted(Exception):
    """The worker is closing; the rollout was given up."""


class Outside(Protocol):
    """What the worker needs of the graph around it."""

    def announce(self, worker: 'TrainingWorker') -> None:
        """Publish what changed: knowledge, policy in training, active task, status."""

    def collect(self, goal: RolloutGoal, beside: Callable[[], None]) -> Batch:
        """Ask the bridge for a rollout, run `beside` meanwhile and wait for the batch.

        A lost bridge or policy is waited for and asked again. Raises `Interrupted` when closing.
        """


class TrainingWorker:
    """Drives a session by rollouts of the graph."""

    def __init__(self, session: Session, outside: Outside) -> None:
        self.session = session
        self.state = 'idle'
        self.message = ''
        self.mode: Mode = 'idle'
        self.active = ''
        self.paused = False
        self.failed: str | None = None
        self.finished = threading.Event()
        self.last_seconds = 0.0
        self.knowledge = session.learner.knowledge()
        """What the graph was last told; safe to read from any thread."""
        self._outside = outside
        self._commands: queue.Queue[tuple[Callable[[], Any], Future[Any]]] = queue.Queue()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Tell how things stand and answer the session's requests, also after `close`."""
        if self._thread is not None:
            self._thread.join()
        self._closing.clear()
        self._thread = threading.Thread(target=self._run, name='training', daemon=True)
        self._thread.start()

    def close(self, timeout: float | None = 2.0) -> None:
        """Stop after what is running, waited for so long; finished iterations are on disk."""
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
        """Number of the policy in training, 0 without one: a repeated iteration repeats it."""
        learner, visit = self.session.learner, self.session.lifelong.current
        if learner.running is None or visit is None:
            return 0
        return (visit.number + 1) * 1_000_000 + learner.iteration + 1

    def do(self, command: Callable[[], Any]) -> 'Future[Any]':
        """Queue a command; it runs in the worker between two rollouts."""
        future: Future[Any] = Future()
        self._commands.put((command, future))
        return future

    # -- commands, run by the worker itself ----------------------------------------------

    def switch(self, task: str, learn: bool, iterations: int = 0, trajectories: int = 0) -> None:
        """Make a task the active one; a running one is parked."""
        if learn:
            self.session.lifelong.learn(task, iterations, trajectories)
        else:
            self.session.lifelong.hold()
        self.active, self.paused = task, False
        self.mode = 'training' if learn else 'acting'
        self.message = f'{"learning" if learn else "acting with"} {task}'
        self.session.save()

    def pause(self, paused: bool) -> None:
        """Stop asking for rollouts, or go on."""
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
        """Park the running task; a revisit is dropped, so that all is as before it."""
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
        """Write all that was learned to a file."""
        self.session.export_knowledge(path)
        self.message = f'saved {path}'

    def load(self, path: Path) -> None:
        """Replace all that was learned, and tell the graph before anybody is answered."""
        self.session.import_knowledge(path)
        self.message = f'loaded {path}'
        self._outside.announce(self)

    def evaluate(self, task: str, n: int, seed: int, explore: bool) -> Batch:
        """Run the policy of a task as it is now, without learning."""
        learner = self.session.learner
        knowledge, running = learner.knowledge(), learner.running == task
        if not running:
            knowledge.policy(task)
        before = (self.mode, self.active)
        self.mode, self.active, self.state = 'evaluating', task, 'evaluating'
        rollout_id = (1 << 62) | (seed & (2**61 - 1))
        version = self.policy_version if running else 0
        goal = RolloutGoal(task, n, rollout_id, seed, explore, version, knowledge.version)
        try:
            self._outside.announce(self)
            return self._outside.collect(goal, lambda: None)
        finally:
            self.mode, self.active = before

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
        state = 'paused' if self.paused else 'finished' if done else 'idle'
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
        self.mode = 'training' if request.running or learns else 'evaluating'
        self.active = request.task
        self.state = 'sampling' if learns else 'evaluating'
        self.finished.clear()
        goal = RolloutGoal(
            task=request.task,
            n_trajectories=request.n_trajectories,
            rollout_id=rollout_id(self.session, request),
            seed=request.seed,
            explore=request.explore,
            policy_version=self.policy_version if request.running else 0,
            knowledge_version=self.session.learner.knowledge().version,
        )
        self._outside.announce(self)
        started = time.perf_counter()
        batch = self._outside.collect(goal, self.session.background)
        self.last_seconds = time.perf_counter() - started
        self.state = 'learning' if learns else 'evaluating'
        self.session.feed(batch, self.last_seconds)
        self._outside.announce(self)


def rollout_id(session: Session, request: Request) -> int:
    """Return the number of a rollout: the same request has the same one after a restart."""
    position = session.lifelong.visits[request.visit].position
    final = 500_000 if request.stage.name.startswith('final') else 0
    return (request.visit + 1) * 1_000_000 + final + 2 * position + int(request.explore)
