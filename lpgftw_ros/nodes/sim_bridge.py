"""`sim_bridge`: own the parallel environments of the active task."""

from collections.abc import Sequence
import math
import sys
import time
from typing import Any

from rclpy.task import Future
from rclpy.time import Time
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import Image, JointState
from std_srvs.srv import Trigger

from lpgftw_interfaces.msg import ScenePose
from lpgftw_interfaces.srv import LoadTask
from lpgftw_ros.domains.rendering import Painter
from lpgftw_ros.domains.rollout import Rollout
from lpgftw_ros.domains.sampler import Sampler
from lpgftw_ros.domains.vector_env import TaskVectorEnv
from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.graph.admission import MOST_ROWS, require_batch, require_count, require_text
from lpgftw_ros.graph.policy_server import NotYet, PolicyServer
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.learning.policies import PolicySnapshot
from lpgftw_ros.nodes import qos
from lpgftw_ros.nodes.bridge import Bridge
from lpgftw_ros.nodes.conversions import key_to_msg, refuse, to_field
from lpgftw_ros.nodes.lifecycle import OK, WARN
from lpgftw_ros.nodes.lock_step import GivenUp, RunningRollout
from lpgftw_ros.nodes.process import run
from lpgftw_ros.nodes.serving import EpisodeLoop

WIDTH, HEIGHT = 480, 360
SHOW_PERIOD = 0.1  # s between published steps of a rollout that asks nobody
CLOCK_PERIOD = 1.0 / 80.0  # s between two messages on /clock, at least


class SimulatedTime:
    """Simulated time, counted in control steps over all rollouts; it never goes back."""

    def __init__(self, node: Bridge, nanoseconds: int) -> None:
        self._publisher = node.create_publisher(Clock, '/clock', qos.LOCK_STEP)
        self._node, self._told = node, -CLOCK_PERIOD
        self.nanoseconds = nanoseconds

    def pass_by(self, seconds: float, now: float) -> None:
        """Count a control step; publish the time unless it was published just before."""
        self.nanoseconds += round(seconds * 1e9)
        if now - self._told >= CLOCK_PERIOD:
            self._told = now
            self._publisher.publish(Clock(clock=Time(nanoseconds=self.nanoseconds).to_msg()))

    def close(self) -> None:
        """Leave the topic."""
        self._node.destroy_publisher(self._publisher)


class SimBridge(Bridge):
    """Simulated rows of one task, stepped together."""

    CHANGEABLE = ('realtime_factor', 'image_period')

    def __init__(self) -> None:
        super().__init__('sim_bridge')
        self.policy_server: PolicyServer | None = None
        """The policy of the same process: it is then called directly instead of by messages."""
        self._imaged, self._image_period = 0.0, self.config.image_period
        self._simulated: SimulatedTime | None = None
        self._simulated_ns = 0
        """Where simulated time stood when the node was cleaned up."""
        self._physics: dict[str, str] = {}

    def configure(self) -> None:
        """Open the suite; environments are built when a task is requested."""
        config = self.config
        self._sampler = Sampler(config.suite, config.workers, config.step_timeout)
        super().configure()
        if self.config.publish_clock:
            self._simulated = SimulatedTime(self, self._simulated_ns)
        self._joints = self.create_publisher(JointState, 'joint_states', qos.SENSOR)
        self._images = self.create_publisher(Image, 'image', qos.SENSOR)
        self._painter = Painter()
        self._poses = self.create_publisher(ScenePose, 'scene_pose', qos.NEWEST)
        self._load = self.create_service(LoadTask, 'load_task', self._on_load)
        self._episodes = EpisodeLoop(self)
        self._triggers = (
            self.create_service(Trigger, '~/run', self._episodes.on_run),
            self.create_service(Trigger, '~/stop', self._episodes.on_stop),
        )

    def cleanup(self) -> None:
        """Close environments and workers."""
        if hasattr(self, '_sampler'):
            self._sampler.interrupt()  # environments may be in the making
        super().cleanup()
        if hasattr(self, '_sampler'):
            self._episodes.close()
            for service in (self._load, *self._triggers):
                self.destroy_service(service)
            self._painter.close()
            self.destroy_publisher(self._joints)
            self.destroy_publisher(self._images)
            self.destroy_publisher(self._poses)
            if self._simulated is not None:
                self._simulated.close()
                self._simulated_ns, self._simulated = self._simulated.nanoseconds, None
            self._sampler.close()
            del self._sampler

    def health(self) -> tuple[int, str, dict[str, object]]:
        """Return what every bridge has, why there are no pictures, and lost workers."""
        level, message, values = super().health()
        if not hasattr(self, '_sampler'):
            return level, message, values
        problem, values = self._painter.problem, values | {'lost_workers': self._sampler.replaced}
        if level == OK and problem and self._image_period:
            return WARN, problem, values
        return level, message, values

    def on_parameter(self, name: str, value: Any) -> None:
        """Follow a parameter that takes effect at once."""
        super().on_parameter(name, value)
        if name == 'image_period':
            self._image_period = value

    def environment(self, task: str, n: int) -> TaskVectorEnv:
        """Return n rows of a task, built at first use."""
        return self._sampler.env(task, min(n, MOST_ROWS))

    def start(self, running: RunningRollout) -> Sequence[Rollout]:
        """Start a rollout, in two parts where steps take long; too many rows come in waves."""
        key, n = running.key, running.goal.n_trajectories
        require_batch('n_trajectories', self._sampler.suite.task(key.task), n)
        if n > MOST_ROWS:
            return super().start(running)
        return self._sampler.turns(key.task, n, key.seed)

    def roll_out(self, running: RunningRollout) -> None:
        """Run a rollout; if a worker hangs or dies in it, again from its start with new ones."""
        running.physics = self._physics_of(running.key.task)
        once = super().roll_out if self.policy_server is None else self._roll_out_here
        self._sampler.persist(running.key.task, lambda: once(running))

    def _roll_out_here(self, running: RunningRollout) -> None:
        """Act with the policy of this process."""
        assert self.policy_server is not None
        key, n = running.key, running.goal.n_trajectories
        require_batch('n_trajectories', self._sampler.suite.task(key.task), n)
        policy = self._policy_here(self.policy_server, running)
        running.parts = self._sampler.rollouts(key.task, n, key.seed)
        started = time.monotonic()
        self._sampler.drive(
            running.parts, policy, key.explore, lambda actions: self._watch(running, actions)
        )
        running.step_seconds = time.monotonic() - started

    def _physics_of(self, task: str) -> str:
        """Return the fingerprint of a task's physics, taken once."""
        if task not in self._physics:
            self._physics[task] = self._sampler.fingerprint(task)
        return self._physics[task]

    def _policy_here(self, server: PolicyServer, running: RunningRollout) -> PolicySnapshot:
        """Return the policy of the goal; wait if it is on its way."""
        patience = self.config.action_timeout
        running.asked = time.monotonic()
        while True:
            try:
                policy = server.policy(running.key)
                running.asked = math.inf
                return policy
            except NotYet as reason:
                late = time.monotonic() - running.asked > patience
                if late or running.stopped.wait(0.002):
                    raise GivenUp(f'the policy node is not ready: {reason}') from reason

    def _watch(self, running: RunningRollout, actions: Array) -> None:
        """Publish some of the steps taken here; raise if the rollout was stopped."""
        if running.stopped.is_set():
            raise GivenUp('stopped')
        now = time.monotonic()
        if now - running.shown > SHOW_PERIOD:
            running.shown = now
            self._lock_step.show(running, actions)
        self.show_pose(running)
        self.pace_and_publish(running, now)

    def pace_and_publish(self, running: RunningRollout, now: float) -> None:
        """Advance simulated time, then do what every bridge does between two steps."""
        if self._simulated is not None:
            self._simulated.pass_by(running.rollout.env.control_period, now)
        super().pace_and_publish(running, now)

    def time_ns(self) -> int:
        """Return simulated time if this node publishes it, else the node's time."""
        return super().time_ns() if self._simulated is None else self._simulated.nanoseconds

    def on_progress(self, running: RunningRollout, now: float) -> None:
        """Publish joints and, if asked for, a picture of row 0."""
        env = running.rollout.env
        if self._image_period and now - self._imaged >= self._image_period:
            self._imaged = now
            if self._images.get_subscription_count():
                self._paint(running)
        names, positions, velocities = env.joint_state(0)
        joints = JointState(
            name=list(names), position=positions.tolist(), velocity=velocities.tolist()
        )
        joints.header.stamp = Time(nanoseconds=self.time_ns()).to_msg()
        self._joints.publish(joints)

    def on_pose(self, running: RunningRollout, now: float) -> float:
        """Publish the pose of row 0 if there is a subscriber; return when to call again."""
        rate = self.config.pose_rate
        if not rate:
            return math.inf
        if self._poses.get_subscription_count():
            rollout = running.rollout
            state = rollout.env.scene_state(0)
            if state is not None:
                message = ScenePose(
                    key=key_to_msg(running.key),
                    step=rollout.step,
                    trajectory=rollout.first,
                    suite=str(self.config.suite),
                    model=running.physics,
                    time=state.time,
                    qpos=to_field(state.positions),
                    mocap=to_field(state.mocap),
                    goal=to_field(state.goal),
                )
                message.header.stamp = self.get_clock().now().to_msg()
                self._poses.publish(message)
        return max(self._pose_due + 1.0 / rate, now)  # a late one does not slow the rest

    def _paint(self, running: RunningRollout) -> None:
        """Have row 0 drawn, if somebody looks, and published by another thread.

        A task without a MuJoCo model is drawn here: nobody but its environment can.
        """
        env = running.rollout.env
        state, stamp = env.scene_state(0), Time(nanoseconds=self.time_ns()).to_msg()

        def show(frame: Any) -> None:
            height, width, _ = frame.shape
            image = Image(height=height, width=width, encoding='rgb8', step=3 * width)
            image.header.stamp = stamp
            image.data.frombytes(frame.tobytes())
            self._images.publish(image)

        if state is None:
            self._painter.take(lambda: env.render_frame(0), show)
        else:
            self._painter.offer(self.config.suite, running.key.task, state, (WIDTH, HEIGHT), show)

    async def _on_load(
        self, request: LoadTask.Request, response: LoadTask.Response
    ) -> LoadTask.Response:
        try:
            require_text('task', request.task)
            require_count('n', request.n, MOST_ROWS)
        except LpgftwError as error:
            return refuse(response, error)
        loaded: Future = Future(executor=self.executor)
        self._worker.submit(self._load_rows, request.task, request.n or 1, loaded)
        env = await loaded
        if isinstance(env, LpgftwError):
            return refuse(response, env)
        response.success, response.message = True, f'{request.task} is loaded'
        response.n, response.horizon = request.n or 1, env.horizon
        response.obs_dim, response.act_dim = env.obs_dim, env.act_dim
        response.deterministic_resets = env.deterministic_resets
        return response

    def _load_rows(self, task: str, n: int, loaded: Future) -> None:
        outcome: TaskVectorEnv | LpgftwError
        try:
            if self.policy_server is None:
                outcome = self._sampler.rows_in_turns(task, n)[0]
            else:
                outcome = self._sampler.env(task, n)
        except LpgftwError as error:
            outcome = error
        self.executor.create_task(lambda: loaded.set_result(outcome))


def main() -> None:
    """Run the node."""
    sys.exit(run([SimBridge]))


if __name__ == '__main__':
    main()
