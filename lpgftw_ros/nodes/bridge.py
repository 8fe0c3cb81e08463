"""What every bridge has in common: rollouts in lock-step with the policy.

A bridge owns environments. `sim_bridge` has many simulated rows, `arm_bridge` one real arm; both
answer the `collect` action, publish observations, take actions and publish trajectories. A
rollout runs in the bridge's worker thread; the executor stays free for services and cancels.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
import math
import time
from typing import Any

from rclpy.action import ActionServer, CancelResponse, GoalResponse
from rclpy.parameter import Parameter
from rclpy.task import Future

from lpgftw_interfaces.action import CollectRollouts
from lpgftw_interfaces.msg import Actions, Observations, Trajectories
from lpgftw_ros.domains.rollout import Rollout
from lpgftw_ros.domains.vector_env import TaskVectorEnv
from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.nodes import qos
from lpgftw_ros.nodes.conversions import from_field
from lpgftw_ros.nodes.lifecycle import ERROR, LifelongNode, OK, STEADY, WARN
from lpgftw_ros.nodes.mailbox import Mailbox
from lpgftw_ros.nodes.parameters import BridgeConfig, NodeConfig
from lpgftw_ros.nodes.policy_server import NotYet, PolicyServer, Query
from lpgftw_ros.nodes.running_rollout import RunningRollout

PROGRESS_PERIOD = 0.25  # s between what people watch
HEARTBEAT_PERIOD = 0.5  # s between feedback, also while a rollout waits
MONITOR_PERIOD = 0.1  # s between published steps of a composed rollout
LATE, LOST = 2.0, 10.0  # s without an answer until the policy counts as late, as lost
RECENT = 10.0  # s a dropped message stays a warning


class GivenUp(LpgftwError):
    """The rollout ended early; the same one may succeed later."""


class Bridge(LifelongNode):
    """Runs rollouts for whoever asks, one at a time; a new goal replaces a running one."""

    CHANGEABLE: tuple[str, ...] = ('realtime_factor',)
    config: BridgeConfig

    def __init__(self, name: str, config_type: type[NodeConfig] | None = None) -> None:
        super().__init__(name, config_type)
        self.policy_server: PolicyServer | None = None
        """The co-located policy; it is then called directly instead of by messages."""
        self._running: RunningRollout | None = None
        self._worker = ThreadPoolExecutor(1, thread_name_prefix='rollout')
        self._realtime_factor = getattr(self.config, 'realtime_factor', 0.0)
        self.add_post_set_parameters_callback(self._on_parameters)
        self._dropped = self._rollouts = 0
        self._drop_time = -RECENT
        self._drop_reason = self._last_problem = ''

    def environment(self, task: str, n: int) -> TaskVectorEnv:
        """Return the rows of a task; raises `LpgftwError` if there is none."""
        raise NotImplementedError

    def configure(self) -> None:
        """Open topics and the action."""
        self._observations = self.create_publisher(Observations, 'observations', qos.LOCK_STEP)
        self._trajectories = self.create_publisher(Trajectories, 'trajectories', qos.BATCHES)
        self._echo = self.create_publisher(Actions, 'actions', qos.LOCK_STEP)
        self._actions = Mailbox(self, Actions, 'actions', qos.LOCK_STEP)
        self._collect = ActionServer(
            self,
            CollectRollouts,
            'collect',
            execute_callback=self._execute,
            goal_callback=lambda goal: GoalResponse.ACCEPT if self.active else GoalResponse.REJECT,
            cancel_callback=self._on_cancel,
        )
        self._heartbeat = self.create_timer(HEARTBEAT_PERIOD, self._beat, clock=STEADY)

    def deactivate(self) -> None:
        """Give up a running rollout."""
        self._stop('the bridge was deactivated')

    def cleanup(self) -> None:
        """Close topics and the action."""
        self._stop('the bridge is shutting down')
        self._worker.submit(lambda: None).result(2.0)  # what ran has ended
        if hasattr(self, '_collect'):
            self._collect.destroy()
            self.destroy_timer(self._heartbeat)
            self._actions.close()
            for publisher in (self._observations, self._trajectories, self._echo):
                self.destroy_publisher(publisher)
            del self._collect

    def _on_parameters(self, parameters: Iterable[Parameter]) -> None:
        for parameter in parameters:
            if parameter.name == 'realtime_factor':
                self._realtime_factor = parameter.value

    def health(self) -> tuple[int, str, dict[str, object]]:
        """Return whether answers come and how many were dropped."""
        values: dict[str, object] = {'rollouts': self._rollouts, 'dropped_actions': self._dropped}
        running, now = self._running, time.monotonic()
        if running is not None and running.rollout is not None:
            values |= {'task': running.goal.task, 'step': running.rollout.step}
            silent = now - running.asked
            if silent > LATE:
                level, what = (ERROR, 'lost') if silent > LOST else (WARN, 'waiting for')
                return level, f'{what} the policy node: no answer for {silent:.0f} s', values
        if now - self._drop_time < RECENT:
            return WARN, f'dropped {self._dropped} answers, the last: {self._drop_reason}', values
        if running is not None:
            return OK, f'rollout of {running.goal.task}', values
        if self._last_problem:
            return WARN, f'the last rollout failed: {self._last_problem}', values
        return OK, 'ready', values

    # -- one goal ------------------------------------------------------------------------

    async def _execute(self, handle: Any) -> CollectRollouts.Result:
        self._stop('another rollout was asked for')
        future: Future = Future(executor=self.executor)
        running = self._running = RunningRollout(handle.request, None, handle, future)
        self._worker.submit(self._run, running)
        problem = await future
        if self._running is running:
            self._running = None
        if problem:
            return self._abort(handle, problem, running.retry)
        return self._deliver(running)

    def _beat(self) -> None:
        """Tell whoever asked that the rollout is still in work, also while it waits."""
        running = self._running
        if running is not None and not running.stopped.is_set():
            running.handle.publish_feedback(running.feedback())

    def _on_cancel(self, handle: Any) -> CancelResponse:
        if self._running is not None and self._running.handle is handle:
            self._stop('cancelled')
        return CancelResponse.ACCEPT

    def _stop(self, problem: str) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.end(problem)
            self._actions.wake()

    def _abort(self, handle: Any, problem: str, retry: bool = True) -> CollectRollouts.Result:
        if handle.is_cancel_requested:
            handle.canceled()
        else:
            self._last_problem = problem
            self.get_logger().warning(f'rollout of {handle.request.task}: {problem}')
            handle.abort()
        return CollectRollouts.Result(success=False, retry=retry, message=problem)

    def _deliver(self, running: RunningRollout) -> CollectRollouts.Result:
        try:
            batch = running.rollout.batch()
        except LpgftwError as error:
            return self._abort(running.handle, str(error), retry=False)
        self._trajectories.publish(running.trajectories(batch))
        self._rollouts += 1
        self._last_problem = ''
        running.handle.succeed()
        return running.result(batch)

    # -- the worker's half ---------------------------------------------------------------

    def _run(self, running: RunningRollout) -> None:
        """Run one rollout from its first observation to its last."""
        problem = ''
        try:
            if not running.stopped.is_set():
                self._steps(running)
        except (GivenUp, NotYet) as error:
            problem = str(error)
        except LpgftwError as error:
            problem, running.retry = str(error), False
        except Exception as error:
            problem = f'{type(error).__name__}: {error}'
            self.get_logger().error(f'the environments failed: {problem}')
            self.finish(1)  # only a new process has sound workers
        self.executor.create_task(lambda: running.end(problem))

    def _steps(self, running: RunningRollout) -> None:
        goal = running.goal
        env = self.environment(goal.task, goal.n_trajectories)
        rollout = running.rollout = Rollout(env, goal.n_trajectories, goal.seed, goal.task)
        answer = self._ask_policy if self.policy_server is None else self._ask_here
        shape = (rollout.rows, env.act_dim)
        if self._actions.take(0.0) is not None and self.policy_server is None:
            self._drop(running, 'an answer nobody waits for')
        while not rollout.done and not running.stopped.is_set():
            self._advance(running, answer(running, shape))
            self._pace(running)

    def _ask(self, running: RunningRollout) -> None:
        running.asked = time.monotonic()
        self._observations.publish(running.observations())

    def _ask_policy(self, running: RunningRollout, shape: tuple[int, int]) -> Array:
        """Publish the observations, again if need be, until their answer comes."""
        resend, patience = self.config.resend_period, self.config.action_timeout
        self._ask(running)
        sent = running.asked
        while not running.stopped.is_set():
            message = self._actions.take(min(resend, patience))
            now = time.monotonic()
            if message is not None:
                actions = self._accepted(running, message, shape)
                if actions is not None:
                    running.wait_seconds += now - running.asked
                    running.asked = math.inf
                    return actions
            if now - running.asked > patience:
                raise GivenUp(f'no answer from the policy node within {patience:g} s')
            if now - sent >= resend:
                self._observations.publish(running.observations())
                sent = now
        raise GivenUp('stopped')

    def _accepted(
        self, running: RunningRollout, message: Actions, shape: tuple[int, int]
    ) -> Array | None:
        """Return the actions of an answer to the present step, None for any other message."""
        rollout = running.rollout
        echo = (message.rollout_id, message.step, message.first)
        if echo != (running.goal.rollout_id, rollout.step, rollout.first):
            self._drop(running, 'an answer to another rollout or step')
            return None
        try:
            return from_field('actions', message.data, shape)
        except LpgftwError as error:
            self._drop(running, str(error))
            return None

    def _drop(self, running: RunningRollout, why: str) -> None:
        running.dropped += 1
        self._dropped += 1
        self._drop_time, self._drop_reason = time.monotonic(), why
        self.get_logger().warning(f'dropped: {why}', throttle_duration_sec=5.0)

    def _ask_here(self, running: RunningRollout, shape: tuple[int, int]) -> Array:
        """Ask the co-located policy; publish a few steps per second for people to watch."""
        server, goal, rollout = self.policy_server, running.goal, running.rollout
        assert server is not None
        query = Query(
            task=goal.task,
            policy_version=goal.policy_version,
            knowledge_version=goal.knowledge_version,
            seed=goal.seed,
            explore=goal.explore,
            first=rollout.first,
            step=rollout.step,
            observations=rollout.observations,
        )
        actions = self._patiently(running, lambda: server.act(query))
        if (now := time.monotonic()) - running.shown > MONITOR_PERIOD:
            running.shown = now
            self._observations.publish(running.observations())
            self._echo.publish(running.actions(actions))
        return actions

    def _patiently(self, running: RunningRollout, act: Callable[[], Array]) -> Array:
        """Wait for a policy that is on its way."""
        deadline = time.monotonic() + self.config.action_timeout
        while True:
            try:
                return act()
            except NotYet as reason:
                if time.monotonic() > deadline or running.stopped.wait(0.002):
                    raise GivenUp(f'the policy node is not ready: {reason}') from reason

    def _advance(self, running: RunningRollout, actions: Array) -> None:
        started = time.monotonic()
        running.rollout.advance(actions)
        now = time.monotonic()
        running.step_seconds += now - started
        if running.handle.is_cancel_requested:
            running.end('cancelled')
        elif now - running.last_progress > PROGRESS_PERIOD:
            running.last_progress = now
            self.on_progress(running.rollout)

    def on_progress(self, rollout: Rollout) -> None:
        """Publish what people watch, a few times per second; called by the worker."""

    def _pace(self, running: RunningRollout) -> None:
        """Wait for the next control step where a real-time factor asks for it."""
        factor = self._realtime_factor
        if not factor:
            return
        now = time.monotonic()
        running.due = max(running.due + self.control_period / factor, now - 0.1)
        if running.due > now:
            running.stopped.wait(running.due - now)

    @property
    def control_period(self) -> float:
        """Simulated seconds per control step."""
        return 0.0125
