"""`safety_guard`: the only writer of commands to the arm."""

import sys
import time

from geometry_msgs.msg import PoseStamped
import numpy as np
from sensor_msgs.msg import JointState
from std_msgs.msg import Bool
from std_srvs.srv import Trigger

from lpgftw_interfaces import msg
from lpgftw_ros.deploy.contract import ContractMismatch, PolicyContract, require_match
from lpgftw_ros.deploy.safe_motion import ANCHOR
from lpgftw_ros.deploy.safety import SafetyGuard
from lpgftw_ros.deploy.safety_report import Finding, Level, Mode, SafetyRefused
from lpgftw_ros.nodes import qos
from lpgftw_ros.nodes.arm_conversions import (
    arm_command_from_msg,
    contract_from_msg,
    joints_in_order,
)
from lpgftw_ros.nodes.arm_parameters import GuardConfig
from lpgftw_ros.nodes.arm_writer import ArmWriter
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
        self._guard = SafetyGuard(side.limits, side.kinematics, agreed, anchor, self._shortest)
        self._ticked, self._contract, self._told = 0.0, None, -CONTRACT_AGE
        self._writer = ArmWriter(self, self.config, side)
        inputs = (
            (JointState, 'joint_states', self._on_joints, qos.SENSOR),
            (PoseStamped, 'object_pose', self._on_object, qos.SENSOR),
            (msg.ArmCommand, 'arm_command', self._on_command, qos.LOCK_STEP),
            (Bool, 'emergency_stop', self._on_button, qos.BATCHES),
            (Bool, 'deadman', self._on_deadman, qos.SENSOR),
            (msg.PolicyContract, 'policy_contract', self._on_contract, qos.LATCHED),
        )
        self._opened = [self.create_subscription(*each) for each in inputs]
        self._services_opened = [
            self.create_service(Trigger, '~/emergency_stop', self._on_stop),
            self.create_service(Trigger, '~/reset', self._on_reset),
        ]
        self._timer = self.create_timer(side.limits.period, self._tick, clock=STEADY)
        self._early = self.create_timer(side.limits.period, self._tick_early, clock=STEADY)
        self._early.cancel()
        self._writers = self.create_timer(0.5, self._check_writers, clock=STEADY)
        self._writer.tell(self._guard.report)

    def activate(self) -> None:
        """Get ready to move, if nothing speaks against it."""
        if others := self._writer.others():
            raise SafetyRefused(f'{others} other node(s) write to {self._writer.topic}')
        if self._side.contract.hash:
            if self._contract is None or time.monotonic() - self._told > CONTRACT_AGE:
                raise ContractMismatch('no policy tells its contract on policy_contract')
            require_match(self._side.contract, self._contract)
        self._guard.activate(time.monotonic())
        self._writer.tell(self._guard.report)

    def deactivate(self) -> None:
        """Ramp to a stop, say it several times, then fall silent."""
        if not hasattr(self, '_guard'):
            return
        self._guard.deactivate(time.monotonic())
        period, repeats = self._side.limits.period, 0
        while repeats < STOP_REPEATS:
            command = self._guard.tick(time.monotonic())
            repeats = 0 if command.moving else repeats + 1
            self._writer.send(command)
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
        for timer in (self._timer, self._early, self._writers):
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
        p = message.pose.position
        position = np.array([p.x, p.y, p.z])
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
        expected = self._side.contract
        if self.active and expected.hash and self._contract != expected:
            self._guard.latch(Finding('contract'), time.monotonic())
            self._writer.tell(self._guard.report)

    def _on_stop(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        self._guard.latch(Finding('emergency_stop'), time.monotonic())
        self._writer.tell(self._guard.report)
        response.success, response.message = True, 'stopping; call reset to move again'
        return response

    def _on_reset(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        try:
            self._guard.reset(time.monotonic())
            response.success, response.message = True, 'reset'
        except SafetyRefused as refusal:
            response.message = str(refusal)
        self._writer.tell(self._guard.report)
        return response

    def _check(self, believed: bool, what: str) -> None:
        if not believed:
            self.get_logger().warning(f'{what} dropped', throttle_duration_sec=1.0)

    def _check_writers(self) -> None:
        if self.active and self._writer.others() > 0:
            self._guard.latch(Finding('second_writer'), time.monotonic())
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
        self._writer.send(self._guard.tick(self._ticked))
        self._writer.tell(self._guard.report)


def main() -> None:
    """Run the node."""
    sys.exit(run([SafetyGuardNode]))


if __name__ == '__main__':
    main()
