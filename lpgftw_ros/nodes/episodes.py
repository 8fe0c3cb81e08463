"""Episodes back to back without a learner: the bridge's `run` and `stop`."""

from typing import Any

from rclpy.action import ActionClient
from std_srvs.srv import Trigger

from lpgftw_interfaces.action import CollectRollouts
from lpgftw_interfaces.msg import ActiveTask
from lpgftw_ros.nodes import qos
from lpgftw_ros.nodes.lifecycle import LifelongNode, STEADY

RETRY_PERIOD = 0.1  # s
EPISODES = 1 << 61  # rollout ids of episodes, apart from those of a learner
BUSY = (ActiveTask.TRAINING, ActiveTask.EVALUATING)


class EpisodeLoop:
    """Asks its own bridge for one episode of the active task after another."""

    def __init__(self, node: LifelongNode) -> None:
        self._node = node
        self._client = ActionClient(node, CollectRollouts, 'collect')
        self._active: ActiveTask | None = None
        self._subscription = node.create_subscription(
            ActiveTask, 'active_task', self._on_active, qos.LATCHED
        )
        self._handle: Any = None
        self._turn = 0
        """Grows with each `run` and `stop`; answers of an earlier turn count no more."""
        self._wanted = False
        self._retry = node.create_timer(RETRY_PERIOD, self._again, clock=STEADY)
        self._retry.cancel()
        self.episodes = 0

    def close(self) -> None:
        """Stop and close the client."""
        self._wanted = False
        self._node.destroy_timer(self._retry)
        self._client.destroy()
        self._node.destroy_subscription(self._subscription)

    def _on_active(self, message: ActiveTask) -> None:
        self._active = message

    def on_run(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        """Begin to run episodes of the active task with its mean action."""
        active = self._active
        if not self._node.active:
            response.message = f'the bridge is {self._node.state}; activate it first'
        elif active is None or not active.task:
            response.message = 'no task is active; call switch_task first'
        elif active.mode in BUSY:
            response.message = f'{active.task} is in {active.mode}; pause it first'
        elif self._wanted:
            response.success, response.message = True, 'already running'
        else:
            self._wanted = response.success = True
            self._turn += 1
            response.message = f'running episodes of {active.task}'
            self._next(self._turn)
        return response

    def on_stop(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        """Stop, cancelling the running episode."""
        response.success = True
        response.message = f'stopped after {self.episodes} episodes' if self._wanted else 'idle'
        self._wanted = False
        self._turn += 1
        if self._handle is not None:
            self._handle.cancel_goal_async()
        return response

    def _again(self) -> None:
        self._retry.cancel()
        self._next(self._turn)

    def _next(self, turn: int) -> None:
        if not self._wanted or turn != self._turn or self._active is None:
            return
        if self._active.mode in BUSY:
            self._end(turn, f'episodes stopped: {self._active.task} is in {self._active.mode}')
            return
        if not self._client.server_is_ready():  # it is our own, but discovery takes a moment
            self._retry.reset()
            return
        goal = CollectRollouts.Goal(
            task=self._active.task,
            n_trajectories=1,
            rollout_id=EPISODES | (self.episodes + 1),
            seed=self.episodes,
            explore=False,
            policy_version=self._active.policy_version,
        )
        sent = self._client.send_goal_async(goal)
        sent.add_done_callback(lambda future: self._on_accepted(future, turn))

    def _on_accepted(self, future: Any, turn: int) -> None:
        handle = future.result()
        if not handle.accepted:
            self._end(turn, 'the bridge refused an episode')
            return
        self._handle = handle
        if turn != self._turn:
            handle.cancel_goal_async()
        handle.get_result_async().add_done_callback(lambda done: self._on_result(done, turn))

    def _on_result(self, future: Any, turn: int) -> None:
        result = future.result().result
        if not result.success:
            self._end(turn, f'episodes stopped: {result.message}')
            return
        self.episodes += 1
        self._node.get_logger().info(
            f'episode {self.episodes}: return {result.return_mean:.1f}, '
            f'success {result.success_rate:.0%}'
        )
        self._next(turn)

    def _end(self, turn: int, why: str) -> None:
        if turn == self._turn:
            self._wanted, self._handle = False, None
            self._node.get_logger().warning(why)
