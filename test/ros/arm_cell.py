"""The graph around a simulated arm, and an operator who watches and commands it."""

from dataclasses import replace
import math
import os
from pathlib import Path
import signal
import subprocess
import tempfile
import time

from diagnostic_msgs.msg import DiagnosticArray
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
import numpy as np
import rclpy
from rclpy.action import ActionClient
from rclpy.executors import SingleThreadedExecutor
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import JointState
from std_srvs.srv import Trigger
import yaml

from lpgftw_interfaces.action import CollectRollouts
from lpgftw_interfaces.msg import ArmCommand, PolicyContract, RolloutKey, SafetyState
from lpgftw_ros.deploy.export import export_policy, save_policy
from lpgftw_ros.deploy.observation import ControlSettings
from lpgftw_ros.deploy.safety.limits import load_limits
from lpgftw_ros.graph.deployment import deploy_options, describe_deployment
from lpgftw_ros.graph.supervisor import command_of
from lpgftw_ros.learning.policies import PolicySnapshot, PolicySpec
from lpgftw_ros.nodes import qos
from lpgftw_ros.nodes.conversions import COMMAND_TOPICS
from lpgftw_ros.resources import data_folder

CONFIGURE, ACTIVATE = Transition.TRANSITION_CONFIGURE, Transition.TRANSITION_ACTIVATE
DEACTIVATE = Transition.TRANSITION_DEACTIVATE
LIMITS = load_limits()
PATIENCE = 2.0  # s for links, servos and a busy machine, on top of what the guard promises
MOVING, STILL = 0.02, 0.005  # rad/s, the noise of the servos is far below
REPORTS = 20
"""Joint states that tell whether the arm stands; it sends 100 a second."""
STARVED = ('stale_joints', 'stale_object', 'stale_action', 'clock', 'contract')
"""What the guard says of a machine too busy to pass messages in time."""
TRIES = 8
"""Episodes a busy machine may end before a test gives up."""
GOAL = np.array([-0.1, 0.8, 0.245])
SUITE = """
kind: metaworld
horizon: {horizon}
hidden: []
defaults: {{reward: v1, observation: paper6}}
tasks:
  - {{name: reach, task: reach, object: [0, 0.6, 0.02], goal: [-0.1, 0.8, 0.2]}}
"""


def write_suite(folder: Path, horizon: int) -> str:
    path = folder / 'arm.yaml'
    path.write_text(SUITE.format(horizon=horizon))
    return str(path)


PATIENT = {'joints_timeout': 0.8, 'action_timeout': 0.8, 'object_timeout': 1.0}
"""Watchdogs for minutes of motion on a busy machine, where a test is about something else."""


def write_limits(folder: Path, **changes) -> str:
    """Write the shipped limits, with changes where a test is about them."""
    limits = yaml.safe_load((data_folder('sim/sawyer') / 'safety.yaml').read_text())
    path = folder / 'limits.yaml'
    path.write_text(yaml.safe_dump(limits | changes))
    return str(path)


def write_reach_policy(folder: Path, goal: np.ndarray = GOAL, **control) -> str:
    """Write a linear policy that moves the hand straight to a point."""
    moves = np.hstack([-10.0 * np.eye(3), np.zeros((3, 3)), 10.0 * goal[:, None]])
    theta = np.vstack([moves, [0, 0, 0, 0, 0, 0, -1.0]]).ravel()
    policy = PolicySnapshot(PolicySpec(6, 4), theta, np.zeros(0), np.full(4, -3.0))
    path = folder / 'reach.policy'
    save_policy(export_policy(policy, 'reach', ControlSettings(**control), {}), path)
    return str(path)


def speed_of(command) -> float:
    """Return how fast a command to the arm is."""
    if hasattr(command, 'twist'):
        v = command.twist.linear
        return float(np.linalg.norm([v.x, v.y, v.z]))
    return float(np.max(np.abs(command.data))) if hasattr(command, 'data') else math.inf


class ArmCell:
    """Processes of the deployment graph and an operator's node."""

    def __init__(
        self, words: dict[str, list[str]] | None = None, parent: int = 0, **options
    ) -> None:
        """Start everything; `words` are further ROS arguments by process.

        All end with the process `parent`, by default this one.
        """
        self._parent = parent
        graph = describe_deployment(deploy_options({'rehearse': True, **options}))
        self._folder = tempfile.TemporaryDirectory()
        parameters = graph.write_parameters(Path(self._folder.name))
        self.commands = {p.executable: command_of(p, parameters, False) for p in graph.processes}
        for name, more in (words or {}).items():
            self.add_words(name, *more)
        self.processes: dict[str, subprocess.Popen] = {}
        for name in self.commands:
            self.start(name)
        self._context = rclpy.Context()
        rclpy.init(context=self._context, signal_handler_options=SignalHandlerOptions.NO)
        self.node = rclpy.create_node('operator', namespace='/lifelong', context=self._context)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self.node)
        self.states: list[SafetyState] = []
        self.speeds: list[tuple[float, float]] = []
        self.sent: list[float] = []
        """How fast each command to the arm is, rad/s or m/s; positions count as motion."""
        self.arrivals: list[tuple[float, float, float]] = []
        """When each was sent, when it came from the network, how fast it is."""
        self.asked: list[ArmCommand] = []
        self.contracts: list[PolicyContract] = []
        self._pids: set[str] = set()
        self.told: dict[str, dict[str, str]] = {}
        """What each node told of itself last, by its name."""
        subscribe = self.node.create_subscription
        subscribe(SafetyState, 'safety_state', self.states.append, qos.LATCHED)
        subscribe(JointState, 'joint_states', self._on_joints, qos.SENSOR)
        topic, kind = COMMAND_TOPICS[options.get('interface', 'velocity')]
        subscribe(kind, topic, self._on_command, qos.FRAMES)
        subscribe(ArmCommand, 'arm_command', self.asked.append, qos.LOCK_STEP)
        subscribe(PolicyContract, 'policy_contract', self.contracts.append, qos.LATCHED)
        subscribe(DiagnosticArray, '/diagnostics', self._on_diagnostics, 50)
        self._collect = ActionClient(self.node, CollectRollouts, 'collect')
        self._rollouts = 0

    def add_words(self, name: str, *words: str) -> None:
        """Start a process with further ROS arguments from now on."""
        how = self.commands[name]
        self.commands[name] = replace(how, words=[*how.words, *words])

    def start(self, name: str) -> None:
        how = self.commands[name]
        environment = {**os.environ, **how.environment}
        if self._parent:
            environment['LPGFTW_PARENT'] = str(self._parent)
        self.processes[name] = subprocess.Popen(how.words, env=environment)

    def start_again(self, name: str) -> None:
        """Start a process that was killed and wait for it; its remains may still be seen."""
        self.start(name)
        pid = str(self.processes[name].pid)
        assert self.until(lambda: pid in self._pids, 60.0), f'{name} is not back'

    def stop(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        for process in self.processes.values():
            try:
                process.wait(10.0)
            except subprocess.TimeoutExpired:
                process.kill()
        self._executor.shutdown(timeout_sec=0.5)
        self.node.destroy_node()
        rclpy.try_shutdown(context=self._context)
        self._folder.cleanup()

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        for status in message.status:
            values = {item.key: item.value for item in status.values}
            self._pids.add(values.get('pid', ''))
            self.told[status.name.rsplit(' ', 1)[-1]] = values

    def _on_command(self, message, info) -> None:
        self.sent.append(speed_of(message))
        times = (1e-9 * info[f'{when}_timestamp'] for when in ('source', 'received'))
        self.arrivals.append((*times, self.sent[-1]))

    def _on_joints(self, message: JointState) -> None:
        self.speeds.append((time.monotonic(), float(np.max(np.abs(message.velocity)))))

    def watch(self, seconds: float) -> None:
        """Take in what arrives."""
        self.until(lambda: False, seconds)

    def until(self, condition, timeout: float = 60.0) -> bool:
        end = time.monotonic() + timeout
        while time.monotonic() < end and not condition():
            self._executor.spin_once(timeout_sec=0.05)
        return bool(condition())

    def call(self, kind, name: str, request=None, timeout: float = 60.0):
        client = self.node.create_client(kind, name)
        try:
            assert self.until(client.service_is_ready, timeout), f'no service {name}'
            future = client.call_async(request or kind.Request())
            assert self.until(future.done, timeout), f'{name} did not answer'
            return future.result()
        finally:
            self.node.destroy_client(client)

    def trigger(self, name: str):
        return self.call(Trigger, name)

    def call_until_done(self, name: str, timeout: float = 60.0, given_up=lambda: False) -> None:
        """Call a `Trigger` service until it does what it is for, or nobody needs it any more."""
        end = time.monotonic() + timeout
        while not (answer := self.trigger(name)).success and not given_up():
            assert time.monotonic() < end, f'{name}: {answer.message}'
            self.watch(0.2)

    def change(self, node: str, transition: int) -> bool:
        request = ChangeState.Request()
        request.transition.id = transition
        return self.call(ChangeState, f'{node}/change_state', request).success

    def insist(self, node: str, transition: int) -> None:
        """Try a transition until it is allowed: measurements and contract take their time."""
        for _ in range(20):
            if self.change(node, transition):
                return
            self.watch(0.5)
        raise AssertionError(f'{node} refuses transition {transition}')

    def configure(self) -> None:
        """Configure guard and bridge; nothing can move yet."""
        assert self.change('arm_bridge', CONFIGURE)
        assert self.change('safety_guard', CONFIGURE)
        assert self.until(lambda: len(self.speeds) > 20), 'the arm does not report'

    def activate(self) -> None:
        self.insist('safety_guard', ACTIVATE)
        self.insist('arm_bridge', ACTIVATE)

    def ready(self) -> None:
        """Bring guard and bridge to life, as an operator does."""
        self.configure()
        self.activate()
        self.expect_ok()

    def expect_ok(self) -> None:
        for _ in range(TRIES):
            self.until(lambda: self.level in (SafetyState.OK, SafetyState.LATCHED), 20.0)
            if self.level != SafetyState.LATCHED or self.code not in STARVED:
                break
            self.call_until_done('safety_guard/reset')
            self.until(lambda: self.level != SafetyState.LATCHED, 5.0)
        assert self.until(lambda: self.level == SafetyState.OK, 20.0), self.states[-1:]

    def reset(self) -> None:
        """Reset a latched guard as soon as it allows it, and see it run."""
        self.call_until_done('safety_guard/reset')
        self.expect_ok()

    def attend(self, condition, timeout: float) -> bool:
        """Wait for a condition, beside an arm whose guard is reset when the machine starves it."""
        end = time.monotonic() + timeout
        while not condition() and time.monotonic() < end:
            if self.level == SafetyState.LATCHED:
                assert self.code in STARVED, self.states[-1]
                self.call_until_done('safety_guard/reset')
                self.until(lambda: self.level != SafetyState.LATCHED, 5.0)
            self.until(lambda: condition() or self.level == SafetyState.LATCHED, 5.0)
        return bool(condition())

    def collect(self, explore: bool = False):
        """Ask for one episode; return the future of its result."""
        assert self.until(self._collect.server_is_ready, 20.0)
        self._rollouts += 1
        key = RolloutKey(task='reach', rollout=self._rollouts, seed=7, explore=explore)
        goal = CollectRollouts.Goal(key=key, n_trajectories=1)
        accepted = self._collect.send_goal_async(goal)
        assert self.until(accepted.done, 20.0)
        return accepted.result().get_result_async()

    def moving_episode(self, begin=None):
        """Start an episode and return its result's future once the arm moves in it."""
        for _ in range(TRIES):
            result = self._begin(begin)
            assert self.until(lambda done=result.done: done() or self._steps(), 60.0), 'no step'
            if not result.done():
                return result
            assert self.code in STARVED, result.result().result.message
            self.watch(1.0)
        raise AssertionError('this machine is too busy for the watchdogs')

    def _steps(self) -> bool:
        """Return whether the arm moves in the episode asked for last, not on its way home."""
        last = self.asked[-1] if self.asked else ArmCommand()
        return self.moves() and last.key.rollout == self._rollouts and last.step > 2

    def whole_episode(self, begin=None):
        """Return the result of an episode that a starved machine did not end."""
        for _ in range(TRIES):
            result = self._begin(begin)
            assert self.until(result.done, 120.0)
            answer = result.result().result
            if answer.success or not (self.code in STARVED or 'no fresh' in answer.message):
                break
            self.watch(1.0)
        return answer

    def _begin(self, begin):
        if self.level == SafetyState.LATCHED:
            self.reset()
        self.expect_ok()
        return (begin or self.collect)()

    @property
    def level(self) -> int:
        return self.states[-1].level if self.states else SafetyState.INACTIVE

    @property
    def code(self) -> str:
        return self.states[-1].code if self.states else ''

    def moves(self) -> bool:
        return self.speed() > MOVING

    def stands(self) -> bool:
        """Return whether the arm came to rest: servos swing a little before they do."""
        return bool(self.speeds) and time.monotonic() - self.last_motion() > 0.2

    def last_motion(self) -> float:
        """Return when a joint was last seen moving, monotonic time."""
        return max((seen for seen, speed in self.speeds[-1000:] if speed >= STILL), default=0.0)

    def expect_still(self, seconds: float) -> None:
        """Watch for so long, and for enough reports to tell, that the arm stands."""
        self.speeds.clear()
        self.watch(seconds)
        assert self.until(lambda: len(self.speeds) >= REPORTS, 20.0), (
            f'only {len(self.speeds)} joint states in {seconds + 20.0:g} s: nothing is known'
        )
        began = self.speeds[0][0]
        fast = [(round(t - began, 3), round(v, 4)) for t, v in self.speeds if v >= STILL]
        assert not fast, (
            f'the arm moved: {len(fast)} of {len(self.speeds)} joint states, up to '
            f'{max(v for _, v in fast)} rad/s, from {fast[0]} to {fast[-1]}; sent {self.sent[:20]}'
        )

    def speed(self) -> float:
        """Return the fastest joint now, rad/s."""
        return self.speeds[-1][1] if self.speeds else 0.0
