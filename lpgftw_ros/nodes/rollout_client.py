"""The learner's side of `collect`: ask a bridge, wait, and ask again if the goal was lost."""

from collections.abc import Callable
import threading
import time
from typing import Any

from rclpy.action import ActionClient
from rclpy.callback_groups import CallbackGroup
from rclpy.guard_condition import GuardCondition
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.node import Node
from rclpy.qos import QoSProfile

from lpgftw_interfaces.action import CollectRollouts
from lpgftw_interfaces.msg import Trajectories
from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.graph.admission import RolloutGoal
from lpgftw_ros.graph.training import GivenUp, Interrupted
from lpgftw_ros.learning.arrays import Batch
from lpgftw_ros.nodes import qos
from lpgftw_ros.nodes.conversions import batch_from_msg, key_from_msg, key_to_msg
from lpgftw_ros.nodes.lifecycle import LifelongNode
from lpgftw_ros.nodes.serving import EPISODES

POLL = 0.05  # s between two checks whether the bridge is still there
ACCEPT_TIMEOUT = 5.0  # s for a bridge to take a goal
DELIVERY_TIMEOUT = 5.0  # s between the result of a goal and its trajectories
STALL_TIMEOUT = 5.0  # s without a sign of the bridge until a rollout is requested again


class RolloutClient:
    """Collects rollouts from the training thread; its callbacks run on the executor."""

    def __init__(
        self,
        node: LifelongNode,
        closing: Callable[[], bool],
        on_retry: Callable[[], None] = lambda: None,
    ) -> None:
        """Collect until `closing`; `on_retry` is called before a goal is sent again."""
        self._node, self._closing, self._on_retry = node, closing, on_retry
        self._client = ActionClient(node, CollectRollouts, 'collect')
        self._subscription = node.create_subscription(
            Trajectories, 'trajectories', self._on_trajectories, qos.BATCHES
        )
        self._news = threading.Condition()
        self._batches: dict[int, Batch] = {}
        self._wanted: RolloutGoal | None = None
        self._given_up: Callable[[], bool] = lambda: False
        self.physics: dict[str, str] = {}
        """Task -> fingerprint of the physics its last trajectories came from."""
        self._heard = 0.0
        self._problem, self._problem_since = '', 0.0
        self.retries = 0
        self.dropped = 0

    @property
    def problem(self) -> tuple[str, float]:
        """What delays the rollout and for how many seconds; empty if nothing does."""
        return self._problem, time.monotonic() - self._problem_since

    def _note(self, problem: str) -> None:
        if problem and not self._problem:
            self._problem_since = time.monotonic()
        self._problem = problem

    def close(self) -> None:
        """Close the client and the topic."""
        self._client.destroy()
        self._node.destroy_subscription(self._subscription)

    def collect(
        self,
        goal: RolloutGoal,
        in_background: Callable[[], None],
        given_up: Callable[[], bool] = lambda: False,
    ) -> Batch:
        """Return the batch of a goal; `in_background` runs once while the bridge samples."""
        jobs: list[Callable[[], None]] = [in_background]
        self._wanted, self._given_up = goal, given_up
        self._batches.clear()
        while True:
            self._check()
            batch = self._attempt(goal, jobs)
            if batch is not None:
                self._note('')
                return batch
            self.retries += 1
            self._on_retry()

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
        try:
            result = self._await_result(self._watch(handle.get_result_async))
        except GivenUp:
            self._watch(handle.cancel_goal_async)
            raise
        if result is None:
            self._watch(handle.cancel_goal_async)
            self._pause('the bridge was lost during a rollout')
            return None
        if not result.result.success:
            if not result.result.retry:
                text = result.result.message
                raise LpgftwError(f'the bridge cannot sample {goal.key.task}: {text}')
            self._pause(result.result.message)
            return None
        batch = self._await_batch(goal.key.rollout)
        if batch is None:
            self._pause(f'no whole trajectories from the bridge within {DELIVERY_TIMEOUT:g} s')
        return batch

    def _check(self) -> None:
        """Raise if the rollout is no longer needed."""
        if self._closing():
            raise Interrupted
        if self._given_up():
            raise GivenUp('the rollout was given up')

    def _await_bridge(self, jobs: list[Callable[[], None]]) -> None:
        started = time.monotonic()
        while not self._client.server_is_ready():
            self._check()
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
            self._check()
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
        self._node.get_logger().warning(
            f'asking for the rollout again: {why}', throttle_duration_sec=5.0
        )
        time.sleep(0.1)

    def _watch(self, request: Callable[[], Any]) -> 'Watched':
        """Send a request from the executor's thread, so that its answer cannot come too early."""
        watched = Watched()
        self._node.executor.create_task(lambda: request().add_done_callback(watched.finish))
        return watched

    def _wait(self, watched: 'Watched', timeout: float) -> Any:
        deadline = time.monotonic() + timeout
        while not watched.done.wait(POLL):
            self._check()
            if time.monotonic() > deadline or not self._client.server_is_ready():
                return None
        return watched.value

    def _on_feedback(self, feedback: Any) -> None:
        self._heard = time.monotonic()

    def _on_trajectories(self, message: Trajectories) -> None:
        if not self._node.is_ours(message.key.run_id, 'trajectories'):
            self.dropped += 1
            return
        if message.key.rollout & EPISODES:  # the bridge's own, for people to watch
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
            self.physics[message.key.task] = message.physics
            self._batches[message.key.rollout] = batch
            self._news.notify_all()

    def _require_wanted(self, message: Trajectories) -> None:
        goal = self._wanted
        if goal is None or key_from_msg(message.key) != goal.key:
            raise LpgftwError('they are of another rollout')
        if message.n != goal.n_trajectories:
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
    return CollectRollouts.Goal(key=key_to_msg(goal.key), n_trajectories=goal.n_trajectories)


# A topic read by a thread of its own instead of by the executor.
#
# rclpy's executor builds a wait set over every entity of its nodes for each message: half of a
# control step. A thread that waits for one topic alone answers in half the time and leaves the
# executor free for services.


class _Aside(CallbackGroup):
    """Entities that the executor ignores."""

    def can_execute(self, entity: Any) -> bool:
        """Keep these callbacks from the executor."""
        return False

    def beginning_execution(self, entity: Any) -> bool:
        """Refuse to execute."""
        return False

    def ending_execution(self, entity: Any) -> None:
        """Return no data."""


class Mailbox:
    """The newest messages of a topic, taken by one thread."""

    def __init__(self, node: Node, kind: type, topic: str, profile: QoSProfile) -> None:
        self._node, self._kind = node, kind
        self._subscription = node.create_subscription(
            kind, topic, lambda message: None, profile, callback_group=_Aside()
        )
        self._bell = GuardCondition(None, None, context=node.context)
        self._wait_set = rclpy_implementation.WaitSet(1, 1, 0, 0, 0, 0, node.context.handle)

    def take(self, timeout: float) -> Any:
        """Return the next message; None after the time-out or when woken."""
        subscription, bell = self._subscription.handle, self._bell.handle
        if not timeout:
            with subscription:
                taken = subscription.take_message(self._kind, False)
            return None if taken is None else taken[0]
        with subscription, bell:
            wait_set = self._wait_set
            wait_set.clear_entities()
            wait_set.add_subscription(subscription)
            wait_set.add_guard_condition(bell)
            wait_set.wait(int(timeout * 1e9))
            taken = subscription.take_message(self._kind, False)
        return None if taken is None else taken[0]

    def wake(self) -> None:
        """Let a waiting `take` return."""
        self._bell.trigger()

    def close(self) -> None:
        """Close the topic; no `take` may be waiting."""
        self._node.destroy_subscription(self._subscription)
        self._bell.destroy()
