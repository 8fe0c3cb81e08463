"""`sim_bridge`: own the parallel environments of the active task."""

import math
import sys
import time

from rclpy.task import Future
from sensor_msgs.msg import Image, JointState
from std_srvs.srv import Trigger

from lpgftw_interfaces.srv import LoadTask
from lpgftw_ros.domains.fingerprint import task_fingerprint
from lpgftw_ros.domains.rollout import Rollout
from lpgftw_ros.domains.sampler import Sampler
from lpgftw_ros.domains.vector_env import TaskVectorEnv
from lpgftw_ros.errors import InvalidConfig, LpgftwError
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.learning.policies import PolicySnapshot
from lpgftw_ros.nodes import qos
from lpgftw_ros.nodes.bridge import Bridge
from lpgftw_ros.nodes.episodes import EpisodeLoop
from lpgftw_ros.nodes.lock_step import GivenUp
from lpgftw_ros.nodes.policy_server import NotYet, PolicyServer
from lpgftw_ros.nodes.process import run
from lpgftw_ros.nodes.running_rollout import RunningRollout

SHOW_PERIOD = 0.1  # s between published steps of a rollout that asks nobody


class SimBridge(Bridge):
    """Simulated rows of one task, stepped together."""

    CHANGEABLE = ('realtime_factor', 'image_period')

    def __init__(self) -> None:
        super().__init__('sim_bridge')
        self.policy_server: PolicyServer | None = None
        """The policy of the same process: it is then called directly instead of by messages."""
        self._imaged = 0.0
        self._physics: dict[str, str] = {}

    def configure(self) -> None:
        """Open the suite; environments are built when a task is asked for."""
        self._sampler = Sampler(self.config.suite, self.config.workers)
        super().configure()
        self._joints = self.create_publisher(JointState, 'joint_states', qos.SENSOR)
        self._images = self.create_publisher(Image, 'image', qos.SENSOR)
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
            self.destroy_publisher(self._joints)
            self.destroy_publisher(self._images)
            self._sampler.close()
            del self._sampler

    def environment(self, task: str, n: int) -> TaskVectorEnv:
        """Return n rows of a task, built at first use."""
        if n < 1:
            raise InvalidConfig(f'a rollout needs at least one trajectory, got {n}')
        return self._sampler.env(task, n)

    def roll_out(self, running: RunningRollout) -> None:
        """Act with the policy of this process if there is one, else ask the policy node."""
        running.physics = self._physics_of(running.goal.task)
        if self.policy_server is None:
            super().roll_out(running)
            return
        goal = running.goal
        policy = self._policy_here(self.policy_server, running)
        running.parts = self._sampler.rollouts(goal.task, goal.n_trajectories, goal.seed)
        started = time.monotonic()
        self._sampler.drive(
            running.parts, policy, goal.explore, lambda actions: self._watch(running, actions)
        )
        running.step_seconds = time.monotonic() - started

    def _physics_of(self, task: str) -> str:
        """Return the fingerprint of a task's physics, taken once."""
        if task not in self._physics:
            self._physics[task] = task_fingerprint(self._sampler.suite, task)
        return self._physics[task]

    def _policy_here(self, server: PolicyServer, running: RunningRollout) -> PolicySnapshot:
        """Return the policy the goal names; one that is on its way is waited for."""
        goal, patience = running.goal, self.config.action_timeout
        running.asked = time.monotonic()
        while True:
            try:
                policy = server.policy(goal.task, goal.policy_version, goal.knowledge_version)
                running.asked = math.inf
                return policy
            except NotYet as reason:
                late = time.monotonic() - running.asked > patience
                if late or running.stopped.wait(0.002):
                    raise GivenUp(f'the policy node is not ready: {reason}') from reason

    def _watch(self, running: RunningRollout, actions: Array) -> None:
        """Before a step taken here: show it now and then; raise if the rollout was stopped."""
        if running.stopped.is_set():
            raise GivenUp('stopped')
        now = time.monotonic()
        if now - running.shown > SHOW_PERIOD:
            running.shown = now
            self._lock_step.show(running, actions)
        self.look_up(running, now)

    def on_progress(self, rollout: Rollout) -> None:
        """Publish joints and, if asked for, a picture of row 0."""
        env = rollout.env
        names, positions, velocities = env.joint_state(0)
        joints = JointState(
            name=list(names), position=positions.tolist(), velocity=velocities.tolist()
        )
        joints.header.stamp = self.get_clock().now().to_msg()
        self._joints.publish(joints)
        period = self.get_parameter('image_period').value
        if period and time.monotonic() - self._imaged > period:
            self._imaged = time.monotonic()
            self._publish_image(env)

    def _publish_image(self, env: TaskVectorEnv) -> None:
        try:
            frame = env.render_frame(0)
        except LpgftwError as error:
            self.get_logger().warning(f'no image: {error}', throttle_duration_sec=60.0)
            return
        height, width, _ = frame.shape
        image = Image(height=height, width=width, encoding='rgb8', step=3 * width)
        image.header.stamp = self.get_clock().now().to_msg()
        image.data.frombytes(frame.tobytes())
        self._images.publish(image)

    async def _on_load(
        self, request: LoadTask.Request, response: LoadTask.Response
    ) -> LoadTask.Response:
        loaded: Future = Future(executor=self.executor)
        self._worker.submit(self._load_rows, request.task, request.n or 1, loaded)
        env = await loaded
        if isinstance(env, LpgftwError):
            response.message = str(env)
            return response
        response.success, response.message = True, f'{request.task} is loaded'
        response.n, response.horizon = env.num_envs, env.horizon
        response.obs_dim, response.act_dim = env.obs_dim, env.act_dim
        response.deterministic_resets = env.deterministic_resets
        return response

    def _load_rows(self, task: str, n: int, loaded: Future) -> None:
        outcome: TaskVectorEnv | LpgftwError
        try:
            outcome = self._sampler.env(task, n)
        except LpgftwError as error:
            outcome = error
        self.executor.create_task(lambda: loaded.set_result(outcome))


def main() -> None:
    """Run the node."""
    sys.exit(run([SimBridge]))


if __name__ == '__main__':
    main()
