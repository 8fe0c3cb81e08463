"""The learner's side of `collect`: ask a bridge, wait, and ask again if it was lost."""

from collections.abc import Callable
import threading
import time
from typing import Any

from rclpy.action import ActionClient

from lpgftw_interfaces.action import CollectRollouts
from lpgftw_interfaces.msg import Trajectories
from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.learning.batch import Batch
from lpgftw_ros.nodes import qos
from lpgftw_ros.nodes.conversions import batch_from_msg
from lpgftw_ros.nodes.episodes import EPISODES
from lpgftw_ros.nodes.lifecycle import LifelongNode
from lpgftw_ros.nodes.training_worker import Interrupted, RolloutGoal

POLL = 0.05  # s between looks at whether the bridge is still there
ACCEPT_TIMEOUT = 5.0  # s for a bridge to take a goal
DELIVERY_TIMEOUT = 5.0  # s between the result of a goal and its trajectories
STALL_TIMEOUT = 5.0  # s without a sign of the bridge until a rollout is asked for again


class RolloutClient:
    """Collects rollouts from the training thread; its callbacks run on the executor."""

    def __init__(self, node: LifelongNode, closing: Callable[[], bool]) -> None:
        self._node, self._closing = node, closing
        self._client = ActionClient(node, CollectRollouts, 'collect')
        self._subscription = node.create_subscription(
            Trajectories, 'trajectories', self._on_trajectories, qos.BATCHES
        )
        self._news = threading.Condition()
        self._batches: dict[int, Batch] = {}
        self._wanted: RolloutGoal | None = None
        self.physics: dict[str, str] = {}
        """Task -> fingerprint of the physics its last trajectories came from."""
        self._heard = 0.0
        self._problem, self._problem_since = '', 0.0
        self.retries = 0
        self.dropped = 0

    @property
    def problem(self) -> tuple[str, float]:
        """What keeps the rollout from coming and for how many seconds; empty if nothing."""
        return self._problem, time.monotonic() - self._problem_since

    def _note(self, problem: str) -> None:
        if problem and not self._problem:
            self._problem_since = time.monotonic()
        self._problem = problem

    def close(self) -> None:
        """Close the client and the topic."""
        self._client.destroy()
        self._node.destroy_subscription(self._subscription)

    def collect(self, goal: RolloutGoal, beside: Callable[[], None]) -> Batch:
        """Return the batch of a goal; `beside` runs once while the bridge samples."""
        jobs: list[Callable[[], None]] = [beside]
        self._wanted = goal
        self._batches.clear()
        while True:
            if self._closing():
                raise Interrupted
            batch = self._attempt(goal, jobs)
            if batch is not None:
                self._note('')
                return batch
            self.retries += 1

    def _attempt(self, goal: RolloutGoal, jobs: list[Callable[[], None]]) -> Batch | None:
        """Send the goal once; None if it was lost on the way."""
        self._await_bridge(jobs)
        accepted = self._watch(
            lambda: self._client.send_goal_async(_goal(goal), self._on_feedback)
        )
        while jobs:
            jobs.pop()()
        handle = self._wait(accepted, ACCEPT_TIMEOUT)
        if handle is None or not handle.accepted:
            self._pause('the bridge did not take the rollout')
            return None
        result = self._await_result(self._watch(handle.get_result_async))
        if result is None:
            self._watch(handle.cancel_goal_async)
            self._pause('the bridge was lost during a rollout')
            return None
        if not result.result.success:
            if not result.result.retry:
                raise LpgftwError(f'the bridge cannot sample {goal.task}: {result.result.message}')
            self._pause(result.result.message)
            return None
        batch = self._await_batch(goal.rollout_id)
        if batch is None:
            self._pause(f'no whole trajectories from the bridge within {DELIVERY_TIMEOUT:g} s')
        return batch

    def _await_bridge(self, jobs: list[Callable[[], None]]) -> None:
        started = time.monotonic()
        while not self._client.server_is_ready():
            if self._closing():
                raise Interrupted
            while jobs:
                jobs.pop()()
            if time.monotonic() - started > 1.0:
                self._note('waiting for the bridge')
                self._node.get_logger().warning(
                    'waiting for a bridge that offers `collect`', throttle_duration_sec=5.0
                )
            time.sleep(POLL)

    def _await_result(self, watched: 'Watched') -> Any:
        self._heard, lost_since = time.monotonic(), None
        while not watched.done.wait(POLL):
            if self._closing():
                raise Interrupted
            now = time.monotonic()
            ready = self._client.server_is_ready()
            lost_since = None if ready else (lost_since or now)
            if lost_since is not None and now - lost_since > 0.5:
                return None
            if now - self._heard > STALL_TIMEOUT:
                return None
        return watched.value

    def _await_batch(self, rollout_id: int) -> Batch | None:
        with self._news:
            self._news.wait_for(lambda: rollout_id in self._batches, DELIVERY_TIMEOUT)
            return self._batches.pop(rollout_id, None)

    def _pause(self, why: str) -> None:
        self._note(why)
        self._node.get_logger().warning(f'asking for the rollout again: {why}')
        time.sleep(0.1)

    def _watch(self, request: Callable[[], Any]) -> 'Watched':
        """Send a request from the executor's thread: from another, its answer may come first."""
        watched = Watched()
        self._node.executor.create_task(lambda: request().add_done_callback(watched.finish))
        return watched

    def _wait(self, watched: 'Watched', timeout: float) -> Any:
        deadline = time.monotonic() + timeout
        while not watched.done.wait(POLL):
            if self._closing():
                raise Interrupted
            if time.monotonic() > deadline or not self._client.server_is_ready():
                return None
        return watched.value

    def _on_feedback(self, feedback: Any) -> None:
        self._heard = time.monotonic()

    def _on_trajectories(self, message: Trajectories) -> None:
        if message.rollout_id & EPISODES:  # the bridge's own, for people to watch
            return
        try:
            self._require_wanted(message)
            batch = batch_from_msg(message)
        except LpgftwError as error:
            self.dropped += 1
            self._node.get_logger().warning(
                f'trajectories dropped: {error}', throttle_duration_sec=5.0
            )
            return
        with self._news:
            self.physics[message.task] = message.physics
            self._batches[message.rollout_id] = batch
            self._news.notify_all()

    def _require_wanted(self, message: Trajectories) -> None:
        goal = self._wanted
        names = ('task', 'rollout_id', 'seed', 'explore', 'policy_version', 'knowledge_version')
        for name in names:
            if goal is None or getattr(message, name) != getattr(goal, name):
                raise LpgftwError(f'they are of another rollout ({name})')
        if goal is not None and message.n != goal.n_trajectories:
            raise LpgftwError(f'{message.n} of {goal.n_trajectories} were sent')


class Watched:
    """A future of the executor that another thread can wait for."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.value: Any = None

    def finish(self, future: Any) -> None:
        """Take the value; called by the executor."""
        self.value = future.result()
        self.done.set()


def _goal(goal: RolloutGoal) -> CollectRollouts.Goal:
    return CollectRollouts.Goal(
        task=goal.task,
        n_trajectories=goal.n_trajectories,
        rollout_id=goal.rollout_id,
        seed=goal.seed,
        explore=goal.explore,
        policy_version=goal.policy_version,
        knowledge_version=goal.knowledge_version,
    )
