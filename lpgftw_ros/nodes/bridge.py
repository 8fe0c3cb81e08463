"""The common part of all bridges: rollouts in lock-step with the policy.

A bridge owns environments. `sim_bridge` has many simulated rows, `arm_bridge` one real arm; both
serve the `collect` action, publish observations, receive actions and publish trajectories. A
rollout runs in the bridge's worker thread; the executor stays free for services and cancels.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
import math
import signal
import time
from typing import Any

from rclpy.action import ActionServer, CancelResponse, GoalResponse
from rclpy.parameter import Parameter
from rclpy.task import Future

from lpgftw_interfaces.action import CollectRollouts
from lpgftw_interfaces.msg import ErrorCode, Trajectories
from lpgftw_ros.domains.rollout import Rollout
from lpgftw_ros.domains.vector_env import TaskVectorEnv
from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.graph.admission import (
    Foreign,
    MOST_TRAJECTORIES,
    require_count,
    require_text,
    RolloutGoal,
)
from lpgftw_ros.graph.parameters import BridgeParameters, NodeParameters
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.nodes import qos
from lpgftw_ros.nodes.conversions import code_of, key_from_msg, NotActive
from lpgftw_ros.nodes.lifecycle import ERROR, LifelongNode, OK, STEADY, WARN
from lpgftw_ros.nodes.lock_step import GivenUp, LockStep, RunningRollout

PROGRESS_PERIOD = 0.25  # s between what people watch
CLOSE_TIMEOUT = 20.0  # s for a control step to end
HEARTBEAT_PERIOD = 0.5  # s between feedback, also while a rollout waits
LATE, LOST = 2.0, 10.0  # s without an answer until the policy counts as late, as lost


class Bridge(LifelongNode, ABC):
    """Runs the requested rollouts, one at a time; a new goal replaces a running one."""

    CHANGEABLE: tuple[str, ...] = ('realtime_factor',)
    config: BridgeParameters

    def __init__(self, name: str, config_type: type[NodeParameters] | None = None) -> None:
        super().__init__(name, config_type)
        self._running: RunningRollout | None = None
        self._worker = ThreadPoolExecutor(
            1, thread_name_prefix='rollout', initializer=keep_from_interrupts
        )
        self._realtime_factor = getattr(self.config, 'realtime_factor', 0.0)
        self._pose_due = 0.0
        self.add_post_set_parameters_callback(self._on_parameters)
        self._rollouts = 0
        self._last_problem = ''

    @abstractmethod
    def environment(self, task: str, n: int) -> TaskVectorEnv:
        """Return the rows of a task; raises `LpgftwError` if there is none."""

    def configure(self) -> None:
        """Open topics and the action."""
        self._trajectories = self.create_publisher(Trajectories, 'trajectories', qos.BATCHES)
        self._lock_step = LockStep(self, self.config)
        self._collect = ActionServer(
            self,
            CollectRollouts,
            'collect',
            execute_callback=self._execute,
            goal_callback=lambda goal: GoalResponse.ACCEPT,
            cancel_callback=self._on_cancel,
        )
        self._feedback_timer = self.create_timer(HEARTBEAT_PERIOD, self._beat, clock=STEADY)

    def deactivate(self) -> None:
        """Abandon a running rollout."""
        self._stop('the bridge was deactivated')

    def cleanup(self) -> None:
        """Close topics and the action."""
        self._stop('the bridge is shutting down')
        self._worker.submit(lambda: None).result(CLOSE_TIMEOUT)  # what ran has ended
        if hasattr(self, '_collect'):
            self._collect.destroy()
            self.destroy_timer(self._feedback_timer)
            self._lock_step.close()
            self.destroy_publisher(self._trajectories)
            del self._collect

    def _on_parameters(self, parameters: Iterable[Parameter]) -> None:
        for parameter in parameters:
            self.on_parameter(parameter.name, parameter.value)

    def on_parameter(self, name: str, value: Any) -> None:
        """Follow a parameter that takes effect at once."""
        if name == 'realtime_factor':
            self._realtime_factor = value

    def health(self) -> tuple[int, str, dict[str, object]]:
        """Return whether answers arrive and how many were dropped."""
        values: dict[str, object] = {'rollouts': self._rollouts}
        if not hasattr(self, '_collect'):
            return OK, self.state, values
        running, link = self._running, self._lock_step
        values['dropped_actions'] = link.dropped
        if running is not None and running.parts:
            values |= {'task': running.key.task, 'step': running.rollout.step}
            silent = time.monotonic() - running.asked
            if silent > LATE:
                level, what = (ERROR, 'lost') if silent > LOST else (WARN, 'waiting for')
                return level, f'{what} the policy node: no answer for {silent:.0f} s', values
        if link.trouble:
            return WARN, link.trouble, values
        if running is not None:
            return OK, f'rollout of {running.key.task}', values
        if self._last_problem:
            return WARN, f'the last rollout failed: {self._last_problem}', values
        return OK, 'ready', values

    # -- one goal ------------------------------------------------------------------------

    async def _execute(self, handle: Any) -> CollectRollouts.Result:
        try:
            goal = self._admitted(handle.request)
        except LpgftwError as error:
            handle.abort()
            self.get_logger().warning(f'rollout refused: {error}', throttle_duration_sec=5.0)
            return CollectRollouts.Result(
                retry=isinstance(error, NotActive), error_code=code_of(error), message=str(error)
            )
        self._stop('another rollout was asked for')
        future: Future = Future(executor=self.executor)
        running = self._running = RunningRollout(goal, handle, future)
        running.now = self.time_ns
        self._worker.submit(self._run, running)
        problem = await future
        if self._running is running:
            self._running = None
        if problem:
            return self._abort(running, problem)
        return self._deliver(running)

    def _admitted(self, request: CollectRollouts.Goal) -> RolloutGoal:
        """Return a goal of this run, within bounds; a person may omit the run's name."""
        if not self.active:
            raise NotActive(f'the bridge is {self.state}; activate it first')
        key = key_from_msg(request.key)
        if key.run_id not in ('', self.config.run_id):
            self.note_foreign('collect', f"it is of run '{key.run_id[:80]}'")
            raise Foreign(f"this bridge belongs to run '{self.config.run_id}'")
        require_text('task', key.task)
        require_count('n_trajectories', request.n_trajectories, MOST_TRAJECTORIES, least=1)
        return RolloutGoal(replace(key, run_id=self.config.run_id), request.n_trajectories)

    def _beat(self) -> None:
        """Send feedback that the rollout still runs, also while it waits."""
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
            self._lock_step.wake()

    def _abort(self, running: RunningRollout, problem: str) -> CollectRollouts.Result:
        handle = running.handle
        if handle.is_cancel_requested:
            handle.canceled()
            code = ErrorCode.CANCELED
        else:
            self._last_problem, code = problem, running.error_code
            self.get_logger().warning(
                f'rollout of {running.key.task}: {problem}', throttle_duration_sec=1.0
            )
            handle.abort()
        return CollectRollouts.Result(retry=running.retry, error_code=code, message=problem)

    def _deliver(self, running: RunningRollout) -> CollectRollouts.Result:
        try:
            batch = running.batch()
        except LpgftwError as error:
            running.retry, running.error_code = False, code_of(error)
            return self._abort(running, str(error))
        self._trajectories.publish(running.trajectories(batch))
        self._rollouts += 1
        self._last_problem = ''
        running.handle.succeed()
        return running.result(batch)

    # -- in the worker thread ------------------------------------------------------------

    def _run(self, running: RunningRollout) -> None:
        """Run one rollout from its first observation to its last."""
        problem = ''
        try:
            if not running.stopped.is_set():
                self.roll_out(running)
        except GivenUp as error:
            problem = str(error)
        except LpgftwError as error:
            problem, running.retry, running.error_code = str(error), False, code_of(error)
        except Exception as error:
            problem = f'{type(error).__name__}: {error}'
            self.get_logger().error(f'the environments failed: {problem}')
            self.finish(1)  # only a new process has sound workers
        self.executor.create_task(lambda: running.end(problem))

    def roll_out(self, running: RunningRollout) -> None:
        """Ask the policy node for every step until the rollout is done."""
        running.parts = self.start(running)
        self._lock_step.begin(running)
        overlap = len(running.parts) > 1
        while not running.stopped.is_set() and (left := [p for p in running.parts if not p.done]):
            for part in left:
                actions = self.ask(running, part)
                started = time.monotonic()
                self.advance(part, actions)
                now = time.monotonic()
                running.step_seconds += now - started
                if overlap and not part.done:
                    self._lock_step.post(running, part)
                if part is left[0]:
                    if overlap:
                        self.show_pose(running)
                    self.pace_and_publish(running, now)

    def start(self, running: RunningRollout) -> Sequence[Rollout]:
        """Start the parts of a rollout."""
        key, n = running.key, running.goal.n_trajectories
        return (Rollout(self.environment(key.task, n), n, key.seed, key.task),)

    def ask(self, running: RunningRollout, part: Rollout) -> Array:
        """Return the policy's answer to what the rows of a part see now."""
        return self._lock_step.ask(running, part, lambda: self.show_pose(running))

    def advance(self, part: Rollout, actions: Array) -> None:
        """Take one control step."""
        part.advance(actions)

    def time_ns(self) -> int:
        """Return the stamp of what is published: when it was measured."""
        return int(self.get_clock().now().nanoseconds)

    def pace_and_publish(self, running: RunningRollout, now: float) -> None:
        """Between two steps: publish the monitoring topics, and wait if real time is requested."""
        if now - running.last_progress > PROGRESS_PERIOD:
            running.last_progress = now
            self.on_progress(running, now)
        if factor := self._realtime_factor:
            period = running.rollout.env.control_period / factor
            running.due = max(running.due + period, now - 0.1)
            if running.due > now:
                running.stopped.wait(running.due - now)

    def show_pose(self, running: RunningRollout) -> None:
        """Publish the pose if it is time; in the lock-step while the policy node thinks."""
        if (now := time.monotonic()) >= self._pose_due:
            self._pose_due = self.on_pose(running, now)

    def on_pose(self, running: RunningRollout, now: float) -> float:
        """Publish the pose of row 0 if there is a subscriber; return when to call again."""
        return math.inf

    def on_progress(self, running: RunningRollout, now: float) -> None:
        """Publish what people watch, a few times per second; called by the worker."""


def keep_from_interrupts() -> None:
    """Keep Ctrl-C from the processes this thread starts, also inside libraries."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
