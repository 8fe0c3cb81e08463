"""`safety_guard`: the only writer of commands to the arm."""

import sys
import time

from geometry_msgs.msg import PoseStamped
from rclpy.event_handler import SubscriptionEventCallbacks
from sensor_msgs.msg import JointState
from std_msgs.msg import Bool
from std_srvs.srv import Trigger

from lpgftw_interfaces import msg
from lpgftw_ros.deploy.export import ContractMismatch, PolicyContract, require_match
from lpgftw_ros.deploy.safety.guard import SafetyGuard
from lpgftw_ros.deploy.safety.motion import SHORTEST
from lpgftw_ros.deploy.safety.report import Finding, Level, Mode, SafetyRefused
from lpgftw_ros.deploy.safety.watch import SafeCommand
from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.graph.parameters import GuardParameters
from lpgftw_ros.nodes import qos
from lpgftw_ros.nodes.arm_writer import ArmWriter, boot_time, require_real_time, TELL_PERIOD
from lpgftw_ros.nodes.conversions import (
    arm_command_from_msg,
    contract_from_msg,
    joints_in_order,
    object_position,
    seconds_of,
)
from lpgftw_ros.nodes.lifecycle import ERROR, LifelongNode, OK, STEADY, WARN
from lpgftw_ros.nodes.process import run
from lpgftw_ros.nodes.serving import CONTRACT_PERIOD

STOP_REPEATS = 3
CONTRACT_AGE = 3.0 * CONTRACT_PERIOD
"""Seconds a contract stays valid; a policy repeats its own regularly."""
LOOK_PERIOD = 0.04
"""Seconds between two checks for other writers and of the contract's age."""


def suspended() -> float:
    """Return the seconds this machine was suspended, in which the steady clock stops."""
    return boot_time() - time.monotonic()


def received_at(stamp: int, longest: float) -> float:
    """Return when a message came from the network, on the steady clock.

    The middleware stamps it with the system's clock, ns; where it does not, or where that clock
    was put back, the message counts as new, and none counts as older than `longest` s.
    """
    waited = 1e-9 * (time.time_ns() - stamp) if stamp > 0 else 0.0
    return time.monotonic() - min(max(waited, 0.0), longest)


class SafetyGuardNode(LifelongNode):
    """Feeds the guard from topics and publishes what it allows; inactive, it sends nothing."""

    HEARS = ('arm_command', 'policy_contract')
    config: GuardParameters
    _guard: SafetyGuard
    _contract: PolicyContract | None

    def __init__(self) -> None:
        super().__init__('safety_guard', GuardParameters)

    def configure(self) -> None:
        """Read the limits, open topics and services."""
        require_real_time(self)
        side = self._side = self.config.arm_side()
        interface, agreed = self.config.interface, side.contract.hash
        self._shortest = side.limits.period * (SHORTEST if interface != 'trajectory' else 1.0)
        self._guard = SafetyGuard(
            side.limits, side.kinematics, agreed, side.control.period, interface, self._shortest
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
        for button in self.config.stop_topics.split():
            self._open_button(button)
        self._services_opened = [
            self.create_service(Trigger, '~/emergency_stop', self._on_stop),
            self.create_service(Trigger, '~/reset', self._on_reset),
        ]
        self._timer = self.create_timer(side.limits.period, self._tick, clock=STEADY)
        self._early = self.create_timer(side.limits.period, self._tick_early, clock=STEADY)
        self._early.cancel()
        self._looking = self.create_timer(LOOK_PERIOD, self._look_around, clock=STEADY)
        self._telling = self.create_timer(TELL_PERIOD, self._tell_again, clock=STEADY)
        self._writer.tell(self._guard.report)

    def _open_button(self, button: str) -> None:
        """Subscribe to one stop button, for any kind of publisher."""
        quiet = SubscriptionEventCallbacks(use_default_callbacks=False)  # one of them always fits
        for how in qos.BUTTON:
            self._opened.append(
                self.create_subscription(
                    Bool,
                    button,
                    lambda message: self._on_button(button, message),
                    how,
                    event_callbacks=quiet,
                )
            )

    def activate(self) -> None:
        """Get ready to move, if it is safe."""
        self._require_own_buttons()
        self._require_surroundings()
        self._guard.activate(time.monotonic())
        self._writer.tell(self._guard.report)

    def _require_surroundings(self) -> None:
        """Raise unless the guard is the only writer and the agreed policy is there."""
        self._writer.require_alone()
        if self._contract is not None and not self._contract_silent():
            require_match(self._side.contract, self._contract)
        elif self._side.contract.hash:
            raise ContractMismatch('no policy tells its contract on policy_contract')

    def _require_own_buttons(self) -> None:
        """Raise `SafetyRefused` if two nodes share a button: a press of one could be lost."""
        for button in self.config.stop_topics.split():
            if (n := self._senders(button)) > 1:
                raise SafetyRefused(
                    f'{n} nodes publish {button}, so none of them can release it: give each '
                    'button a topic of its own in stop_topics'
                )

    def _contract_silent(self) -> bool:
        return time.monotonic() - self._told > CONTRACT_AGE

    def deactivate(self) -> None:
        """Ramp to a stop, repeat it several times, then go silent."""
        if not hasattr(self, '_guard'):
            return
        self._guard.deactivate(time.monotonic())
        period, repeats = self._side.limits.period, 0
        time.sleep(max(0.0, self._ticked + self._shortest - time.monotonic()))
        while repeats < STOP_REPEATS:
            repeats = 0 if self._send().moving else repeats + 1
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
        for timer in (self._timer, self._early, self._looking, self._telling):
            self.destroy_timer(timer)
        self._writer.close()
        del self._guard

    def health(self) -> tuple[int, str, dict[str, object]]:
        """Return the guard's state and its interventions so far."""
        if not hasattr(self, '_guard'):
            return OK, self.state, {}
        report = self._guard.report
        values: dict[str, object] = {f'count_{code}': n for code, n in report.counts.items()}
        values |= {'code': report.code, 'interventions': report.count}
        level = {Level.OK: OK, Level.LATCHED: ERROR}.get(report.level, WARN)
        return level, report.text, values

    def _on_joints(self, message: JointState, info: dict[str, int]) -> None:
        joints, stamp = joints_in_order(message, self._side.arm.joints), message.header.stamp
        received = received_at(info['received_timestamp'], self._side.limits.longest_gap)
        self._check(self._guard.joint_state(joints, received, seconds_of(stamp)), 'joint state')

    def _on_object(self, message: PoseStamped) -> None:
        if not self._in_base(message.header.frame_id, 'object pose'):
            return
        believed = self._guard.object_pose(object_position(message), time.monotonic())
        self._check(believed, 'object pose')

    def _on_command(self, message: msg.ArmCommand) -> None:
        if not self.is_ours(message.key.run_id, 'arm_command'):
            return
        now = time.monotonic()
        deaf = self._guard.mode in (Mode.INACTIVE, Mode.LATCHED)
        if not deaf and not self._in_base(message.header.frame_id, 'command'):
            return
        command = arm_command_from_msg(message, self._side.arm.joints)
        self._check(self._guard.request(command, now) or deaf, 'command')
        if self.config.interface == 'trajectory':
            return
        if (early := self._ticked + self._shortest - now) <= 0.0:
            self._tick_early()
        else:
            self._early.timer_period_ns = int(early * 1e9)
            self._early.reset()

    def _on_button(self, button: str, message: Bool) -> None:
        """Handle a button; if two nodes share a topic, a release may come from either."""
        if message.data or self._senders(button) <= 1:
            self._guard.emergency_stop(message.data, time.monotonic(), button)
        self._writer.tell(self._guard.report)

    def _senders(self, topic: str) -> int:
        """Return how many nodes publish a topic, whatever it is remapped to."""
        return int(self.count_publishers(self.resolve_topic_name(topic)))

    def _on_deadman(self, message: Bool) -> None:
        """Handle the deadman; if two nodes publish it, neither can hold it."""
        held = message.data and self._senders('deadman') <= 1
        self._guard.deadman(held, time.monotonic())

    def _on_contract(self, message: msg.PolicyContract) -> None:
        if not self.is_ours(message.run_id, 'policy_contract'):
            return
        self._contract, self._told = contract_from_msg(message), time.monotonic()
        try:
            require_match(self._side.contract, self._contract)
        except ContractMismatch as mismatch:
            self._latch('contract', str(mismatch))

    def _on_stop(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        """Stop at once; a call is an impulse, so `~/reset` alone clears it."""
        self._guard.latch(Finding('emergency_stop'), time.monotonic())
        self._writer.tell(self._guard.report)
        response.success, response.message = True, 'stopping; call reset to move again'
        return response

    def _on_reset(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        try:
            self._require_own_buttons()
            if self.active:
                self._require_surroundings()
            self._guard.reset(time.monotonic())
            response.success, response.message = True, 'reset'
        except LpgftwError as refusal:
            response.message = str(refusal)
        self._writer.tell(self._guard.report)
        return response

    def _in_base(self, frame: str, what: str) -> bool:
        """Return whether a message is in the frame of the arm base."""
        return frame == self.config.base_frame or self._check(self._guard.drop('frame'), what)

    def _check(self, believed: bool, what: str) -> bool:
        if not believed:
            why = self._guard.dropped
            self.get_logger().warning(f'{what} dropped: {why}', throttle_duration_sec=1.0)
        return believed

    def _look_around(self) -> None:
        """Stop if there is another writer, or if the agreed policy is gone."""
        if not self.active:
            return
        try:
            self._writer.require_alone()
        except SafetyRefused as found:
            self._latch('second_writer', str(found))
        try:
            self._require_own_buttons()
        except SafetyRefused as found:
            self._latch('emergency_stop', str(found))
        if self._side.contract.hash and self._contract_silent():
            self._latch('contract', 'no policy tells its contract on policy_contract any more')

    def _tell_again(self) -> None:
        """Publish that the guard is alive."""
        self._writer.tell(self._guard.report, again=True)

    def _latch(self, code: str, why: str) -> None:
        """Stop because of something in the graph; an inactive guard checks it on activation."""
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
        self._send()
        self._writer.tell(self._guard.report)

    def _send(self) -> SafeCommand:
        """Decide and tell the arm at once; what was decided too long ago is not sent."""
        sent, gap = False, self._side.limits.longest_gap
        while not sent:
            before = boot_time() + gap
            command = self._guard.tick(time.monotonic(), suspended())
            sent = self._writer.send(command, self._guard.sequence, before)
        return command


def main() -> None:
    """Run the node."""
    sys.exit(run([SafetyGuardNode]))


if __name__ == '__main__':
    main()
