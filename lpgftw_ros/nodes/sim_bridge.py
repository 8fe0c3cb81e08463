"""`sim_bridge`: own the parallel environments of the active task."""

import sys
import time

from rclpy.task import Future
from sensor_msgs.msg import Image, JointState
from std_srvs.srv import Trigger

from lpgftw_interfaces.srv import LoadTask
from lpgftw_ros.domains.rollout import Rollout
from lpgftw_ros.domains.sampler import Sampler
from lpgftw_ros.domains.vector_env import TaskVectorEnv
from lpgftw_ros.errors import InvalidConfig, LpgftwError
from lpgftw_ros.nodes import qos
from lpgftw_ros.nodes.bridge import Bridge
from lpgftw_ros.nodes.episodes import EpisodeLoop
from lpgftw_ros.nodes.process import run


class SimBridge(Bridge):
    """Simulated rows of one task, stepped together."""

    CHANGEABLE = ('realtime_factor', 'image_period')

    def __init__(self) -> None:
        super().__init__('sim_bridge')
        self._env: TaskVectorEnv | None = None
        self._imaged = 0.0

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
        self._env = self._sampler.env(task, n)
        return self._env

    @property
    def control_period(self) -> float:
        """Simulated seconds per control step of the loaded task."""
        return 0.0125 if self._env is None else self._env.control_period

    def on_progress(self, rollout: Rollout) -> None:
        """Publish joints and, if asked for, a picture of row 0."""
        env = self._env
        if env is None:
            return
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
