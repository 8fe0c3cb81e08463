"""`safety_guard`: the only writer of commands to the arm."""

import sys
import time

from geometry_msgs.msg import PoseStamped
from rclpy.event_handler import SubscriptionEventCallbacks
from sensor_msgs.msg import JointState
from std_msgs.msg import Bool
from std_srvs.srv import Trigger

from lpgftw_interfaces import msg
from lpgftw_ros.deploy.contract import ContractMismatch, PolicyContract, require_match
from lpgftw_ros.deploy.safe_motion import ANCHOR
from lpgftw_ros.deploy.safety import SafetyGuard
from lpgftw_ros.deploy.safety_report import Finding, Level, Mode, SafetyRefused
from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.nodes import qos
from lpgftw_ros.nodes.arm_conversions import (
    arm_command_from_msg,
    contract_from_msg,
    joints_in_order,
    object_position,
)
from lpgftw_ros.nodes.arm_parameters import GuardConfig
from lpgftw_ros.nodes.arm_writer import ArmWriter, TELL_PERIOD
from lpgftw_ros.nodes.lifecycle import ERROR, LifelongNode, OK, STEADY, WARN
from lpgftw_ros.nodes.process import run
from lpgftw_ros.nodes.serving import CONTRACT_PERIOD

SHORTEST = 0.4
"""Share of a period after which a velocity interface may be told something new."""
STOP_REPEATS = 3
CONTRACT_AGE = 3.0 * CONTRACT_PERIOD
"""Seconds a contract counts after it was told; a policy tells its own again and again."""


class SafetyGuardNode(LifelongNode):
    """Feeds the guard from topics and publishes what it allows; inactive, it sends nothing."""

    config: GuardConfig
    _guard: SafetyGuard
    _contract: PolicyContract | None

    def __init__(self) -> None:
        super().__init__('safety_guard', GuardConfig)

    def configure(self) -> None:
        """Read the limits, open topics and services."""
        side = self._side = self.config.arm_side()
        velocities = self.config.interface != 'trajectory'
        self._shortest = side.limits.period * (SHORTEST if velocities else 1.0)
        anchor, agreed = ANCHOR if velocities else 0.0, side.contract.hash
        self._guard = SafetyGuard(
            side.limits, side.kinematics, agreed, side.control.period, anchor, self._shortest
        )
        self._ticked, self._contract, self._told = 0.0, None, -CONTRACT_AGE
        self._writer = ArmWriter(self, self.config, side)
        inputs = (
            (JointState, 'joint_states', self._on_joints, qos.MEASUREMENT),
            (PoseStamped, 'object_pose', self._on_object, qos.MEASUREMENT),
            (msg.ArmCommand, 'arm_command', self._on_command, qos.LOCK_STEP),
            (Bool, 'deadman', self._on_deadman, qos.MEASUREMENT),
            (msg.PolicyContract, 'policy_contract', self._on_contract, qos.LATCHED),
        )
        self._opened = [self.create_subscription(*each) for each in inputs]
        quiet = SubscriptionEventCallbacks(use_default_callbacks=False)  # one of them always fits
        self._opened += [
            self.create_subscription(
                Bool, 'emergency_stop', self._on_button, how, event_callbacks=quiet
            )
            for how in qos.BUTTON
        ]
        self._services_opened = [
            self.create_service(Trigger, '~/emergency_stop', self._on_stop),
            self.create_service(Trigger, '~/reset', self._on_reset),
        ]
        self._timer = self.create_timer(side.limits.period, self._tick, clock=STEADY)
        self._early = self.create_timer(side.limits.period, self._tick_early, clock=STEADY)
        self._early.cancel()
        self._telling = self.create_timer(TELL_PERIOD, self._tell_again, clock=STEADY)
        self._writer.tell(self._guard.report)

    def activate(self) -> None:
        """Get ready to move, if nothing speaks against it."""
        self._require_surroundings()
        self._guard.activate(time.monotonic())
        self._writer.tell(self._guard.report)

    def _require_surroundings(self) -> None:
        """Raise unless the guard writes alone and the policy that is heard is the right one."""
        self._writer.require_alone()
        silent = time.monotonic() - self._told > CONTRACT_AGE
        if self._contract is not None and not silent:
            require_match(self._side.contract, self._contract)
        elif self._side.contract.hash:
            raise ContractMismatch('no policy tells its contract on policy_contract')

    def deactivate(self) -> None:
        """Ramp to a stop, say it several times, then fall silent."""
        if not hasattr(self, '_guard'):
            return
        self._guard.deactivate(time.monotonic())
        period, repeats = self._side.limits.period, 0
        time.sleep(max(0.0, self._ticked + self._shortest - time.monotonic()))
        while repeats < STOP_REPEATS:
            command = self._guard.tick(time.monotonic())
            repeats = 0 if command.moving else repeats + 1
            self._writer.send(command, self._guard.sequence)
            time.sleep(period)
        self._writer.tell(self._guard.report)

    def cleanup(self) -> None:
        """Close topics and services."""
        if not hasattr(self, '_guard'):
            return
        for subscription in self._opened:
            self.destroy_subscription(subscription)
        for service in self._services_opened:
            self.destroy_service(service)
        for timer in (self._timer, self._early, self._telling):
            self.destroy_timer(timer)
        self._writer.close()
        del self._guard

    def health(self) -> tuple[int, str, dict[str, object]]:
        """Return what the guard does and what it met so far."""
        if not hasattr(self, '_guard'):
            return OK, self.state, {}
        report = self._guard.report
        values: dict[str, object] = {f'count_{code}': n for code, n in report.counts.items()}
        values |= {'code': report.code, 'interventions': report.count}
        level = {Level.OK: OK, Level.LATCHED: ERROR}.get(report.level, WARN)
        return level, report.text, values

    def _on_joints(self, message: JointState) -> None:
        joints = joints_in_order(message, self._side.arm.joints)
        self._check(self._guard.joint_state(joints, time.monotonic()), 'joint state')

    def _on_object(self, message: PoseStamped) -> None:
        position = object_position(message, self.config.base_frame)
        self._check(self._guard.object_pose(position, time.monotonic()), 'object pose')

    def _on_command(self, message: msg.ArmCommand) -> None:
        now = time.monotonic()
        deaf = self._guard.mode in (Mode.INACTIVE, Mode.LATCHED)
        command = arm_command_from_msg(message, self._side.arm.joints)
        self._check(self._guard.request(command, now) or deaf, 'command')
        if self.config.interface == 'trajectory':
            return
        if (early := self._ticked + self._shortest - now) <= 0.0:
            self._tick_early()
        else:
            self._early.timer_period_ns = int(early * 1e9)
            self._early.reset()

    def _on_button(self, message: Bool) -> None:
        self._guard.emergency_stop(message.data, time.monotonic())
        self._writer.tell(self._guard.report)

    def _on_deadman(self, message: Bool) -> None:
        self._guard.deadman(message.data, time.monotonic())

    def _on_contract(self, message: msg.PolicyContract) -> None:
        self._contract, self._told = contract_from_msg(message), time.monotonic()
        try:
            require_match(self._side.contract, self._contract)
        except ContractMismatch as mismatch:
            self._latch('contract', str(mismatch))

    def _on_stop(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        self._guard.latch(Finding('emergency_stop'), time.monotonic())
        self._writer.tell(self._guard.report)
        response.success, response.message = True, 'stopping; call reset to move again'
        return response

    def _on_reset(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        try:
            if self.active:
                self._require_surroundings()
            self._guard.reset(time.monotonic())
            response.success, response.message = True, 'reset'
        except LpgftwError as refusal:
            response.message = str(refusal)
        self._writer.tell(self._guard.report)
        return response

    def _check(self, believed: bool, what: str) -> None:
        if not believed:
            why = self._guard.dropped
            self.get_logger().warning(f'{what} dropped: {why}', throttle_duration_sec=1.0)

    def _tell_again(self) -> None:
        """Look for other writers, and let everyone know that the guard is there."""
        try:
            self._writer.require_alone()
        except SafetyRefused as found:
            self._latch('second_writer', str(found))
        self._writer.tell(self._guard.report, again=True)

    def _latch(self, code: str, why: str) -> None:
        """Stop for something in the surroundings; not active, it is looked at on activation."""
        if not self.active:
            return
        self._guard.latch(Finding(code), time.monotonic())
        self.get_logger().error(why, throttle_duration_sec=5.0)
        self._writer.tell(self._guard.report)

    def _tick_early(self) -> None:
        """Answer a command before the period is over."""
        self._early.cancel()
        self._tick()
        self._timer.reset()

    def _tick(self) -> None:
        now = time.monotonic()
        # A late timer is followed by an early one, and two ticks at once would be a jerk.
        if not self.active or now - self._ticked < 0.9 * self._shortest:
            return
        self._ticked = now
        self._writer.send(self._guard.tick(self._ticked), self._guard.sequence)
        self._writer.tell(self._guard.report)


def main() -> None:
    """Run the node."""
    sys.exit(run([SafetyGuardNode]))


if __name__ == '__main__':
    main()
