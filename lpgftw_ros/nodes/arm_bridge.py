"""`arm_bridge`: one arm in place of the simulator, with the same topics and `collect`."""

import sys

from std_srvs.srv import Trigger

from lpgftw_interfaces.srv import LoadTask
from lpgftw_ros.deploy.arm_env import ArmEnv, ArmStopped
from lpgftw_ros.deploy.controller import ArmController
from lpgftw_ros.deploy.observation import ACT_DIM, OBS_DIM
from lpgftw_ros.deploy.rewards import ArmReward, goal_of
from lpgftw_ros.domains.suites import load_suite
from lpgftw_ros.errors import InvalidConfig, LpgftwError
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.nodes.arm_link import LOOK_PERIOD, RosLink
from lpgftw_ros.nodes.arm_parameters import ArmBridgeConfig
from lpgftw_ros.nodes.bridge import Bridge
from lpgftw_ros.nodes.episodes import EpisodeLoop
from lpgftw_ros.nodes.lifecycle import STEADY
from lpgftw_ros.nodes.lock_step import GivenUp
from lpgftw_ros.nodes.process import run
from lpgftw_ros.nodes.running_rollout import RunningRollout


class ArmBridge(Bridge):
    """Runs rollouts on one arm, in real time."""

    CHANGEABLE = ()
    config: ArmBridgeConfig  # type: ignore[assignment]
    _link: RosLink

    def __init__(self) -> None:
        super().__init__('arm_bridge', ArmBridgeConfig)
        self._awaiting = False
        self._home: Array | None = None

    def configure(self) -> None:
        """Read limits and policy, then open topics; nothing moves yet."""
        side = self._side = self.config.arm_side()
        self._task = load_suite(self.config.suite).task(self.config.task)
        reward = self._built_in_reward()
        self._controller = ArmController(
            side.kinematics, side.limits, side.frame, side.control, side.contract.hash
        )
        super().configure()
        self._link = RosLink(self, self.config, side, reward)
        self._load = self.create_service(LoadTask, 'load_task', self._on_load)
        self._episodes = EpisodeLoop(self)
        self._triggers = (
            self.create_service(Trigger, '~/run', self._episodes.on_run),
            self.create_service(Trigger, '~/stop', self._episodes.on_stop),
        )
        self._holding = self.create_timer(LOOK_PERIOD, self._hold, clock=STEADY)

    def activate(self) -> None:
        """Take the present hand position as home."""
        if (reading := self._link.reading()) is None:
            raise ArmStopped('no fresh joint state and object pose: is the arm up?')
        self._home = self._controller.hand_in_base(reading.joints)
        self._controller.start(reading.joints)

    def cleanup(self) -> None:
        """Close everything; a running rollout ends first."""
        super().cleanup()
        if hasattr(self, '_link'):
            self._episodes.close()
            for service in (self._load, *self._triggers):
                self.destroy_service(service)
            self.destroy_timer(self._holding)
            self._link.close()
            del self._link

    @property
    def control_period(self) -> float:
        """Seconds per control step."""
        return self._side.control.period

    def environment(self, task: str, n: int) -> ArmEnv:
        """Return the arm as an environment; only for the task it is set up for."""
        if task != self._task.name:
            raise InvalidConfig(f"the arm is set up for '{self._task.name}', not for '{task}'")
        home = self._home if self.config.go_home else None
        return ArmEnv(self._link, self._controller, self._task.horizon, home)

    def _built_in_reward(self) -> ArmReward | None:
        kind = self.config.reward
        if kind in ('', 'topic'):
            return None
        return ArmReward(kind, goal_of(kind, self.config.goal, self._task.settings))

    # The worker's half: what differs from a simulator.

    def roll_out(self, running: RunningRollout) -> None:
        """Run one rollout; a held or silent arm may be ready later."""
        goal = running.goal  # a policy in training has a version
        if (goal.explore or goal.policy_version) and not self.config.reward:
            raise InvalidConfig('no reward is set: nothing can be learned on this arm')
        self._link.stopped = running.stopped
        self._link.rollout = (goal.rollout_id, 0)
        try:
            super().roll_out(running)
        except ArmStopped as error:
            raise GivenUp(str(error)) from error

    def ask(self, running: RunningRollout, shape: tuple[int, int]) -> Array:
        """Ask for an action; unless the arm is still at rest, the guard may lose patience."""
        self._link.rollout = (running.goal.rollout_id, running.rollout.step)
        self._awaiting = running.rollout.step > 0
        try:
            return super().ask(running, shape)
        finally:
            self._awaiting = False

    def advance(self, running: RunningRollout, actions: Array) -> None:
        """Step the arm; give up if the guard holds it."""
        super().advance(running, actions)
        if held := self._link.problem():
            raise ArmStopped(f'the arm is held: {held}')

    def _hold(self) -> None:
        """While nothing is to move, tell the guard every period that all is well.

        Not while the policy's answer is awaited: if it never comes, the guard is to stop the arm.
        """
        if not self.active or self._awaiting or self._link.now() < self._link.due:
            return
        if (joints := self._link.joints()) is not None:
            self._link.hold(self._controller.hold(joints))

    def _on_load(
        self, request: LoadTask.Request, response: LoadTask.Response
    ) -> LoadTask.Response:
        try:
            env = self.environment(request.task, 1)
        except LpgftwError as error:
            response.message = str(error)
            return response
        response.success, response.message = True, f'the arm is set up for {request.task}'
        response.n, response.horizon = 1, env.horizon
        response.obs_dim, response.act_dim = OBS_DIM, ACT_DIM
        return response


def main() -> None:
    """Run the node."""
    sys.exit(run([ArmBridge]))


if __name__ == '__main__':
    main()
