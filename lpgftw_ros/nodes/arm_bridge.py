"""`arm_bridge`: one arm in place of the simulator, with the same topics and `collect`.

What a control step does and what ends a rollout is in `deploy/arm/env.py`, what is measured in
`nodes/arm_link.py`.
"""

import sys

from std_srvs.srv import Trigger

from lpgftw_interfaces.srv import LoadTask
from lpgftw_ros.deploy.arm.env import ArmEnv, ArmStopped
from lpgftw_ros.deploy.controller import ArmController
from lpgftw_ros.deploy.observation import ACT_DIM, ArmReward, goal_of, OBS_DIM
from lpgftw_ros.domains.rollout import Rollout
from lpgftw_ros.domains.suites import load_suite
from lpgftw_ros.errors import InvalidConfig, LpgftwError
from lpgftw_ros.graph.parameters import ArmBridgeParameters
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.nodes.arm_link import LOOK_PERIOD, RosLink
from lpgftw_ros.nodes.arm_writer import require_real_time
from lpgftw_ros.nodes.bridge import Bridge
from lpgftw_ros.nodes.conversions import refuse
from lpgftw_ros.nodes.lifecycle import STEADY
from lpgftw_ros.nodes.lock_step import GivenUp, RunningRollout
from lpgftw_ros.nodes.process import run
from lpgftw_ros.nodes.serving import EpisodeLoop


class ArmBridge(Bridge):
    """Runs rollouts on one arm, in real time."""

    CHANGEABLE = ()
    config: ArmBridgeParameters  # type: ignore[assignment]
    _link: RosLink

    def __init__(self) -> None:
        super().__init__('arm_bridge', ArmBridgeParameters)
        self._awaiting = False
        self._home: Array | None = None

    def configure(self) -> None:
        """Read limits and policy, then open topics; nothing moves yet."""
        require_real_time(self)
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
        """Take the current hand position as home."""
        if (reading := self._link.reading()) is None:
            raise ArmStopped('no fresh joint state and object pose: is the arm up?')
        self._home = self._controller.hand_in_base(reading.joints)
        self._controller.start(reading.joints)

    def cleanup(self) -> None:
        """Close everything after the running rollout has ended."""
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

    def time_ns(self) -> int:
        """Return when the joints were measured, by their own stamp."""
        return self._link.measured or super().time_ns()

    # In the worker thread: what differs from a simulator.

    def roll_out(self, running: RunningRollout) -> None:
        """Run one rollout; if the arm is held or silent, the same rollout may succeed later."""
        key = running.key  # a policy in training has a version
        if (key.explore or key.policy_version) and not self.config.reward:
            raise InvalidConfig('no reward is set: nothing can be learned on this arm')
        self._link.stopped = running.stopped
        self._link.rollout = (key, 0)
        try:
            super().roll_out(running)
        except ArmStopped as error:
            raise GivenUp(str(error)) from error

    def ask(self, running: RunningRollout, part: Rollout) -> Array:
        """Ask for an action; while the arm moves, the guard limits the wait."""
        self._link.rollout = (running.key, part.step)
        self._awaiting = part.step > 0
        try:
            return super().ask(running, part)
        finally:
            self._awaiting = False

    def advance(self, part: Rollout, actions: Array) -> None:
        """Step the arm; raise if the guard holds it."""
        super().advance(part, actions)
        if held := self._link.problem():
            raise ArmStopped(f'the arm is held: {held}')

    def _hold(self) -> None:
        """While nothing moves, send the guard a holding command every period.

        Not while waiting for the policy: if its answer never comes, the guard must stop the arm.
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
            return refuse(response, error)
        response.success, response.message = True, f'the arm is set up for {request.task}'
        response.n, response.horizon = 1, env.horizon
        response.obs_dim, response.act_dim = OBS_DIM, ACT_DIM
        return response


def main() -> None:
    """Run the node."""
    sys.exit(run([ArmBridge]))


if __name__ == '__main__':
    main()
