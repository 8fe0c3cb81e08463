"""The whole chain in one process: policy, controller, guard and joint-level arm, without ROS.

It is a vector environment of one row, so the code that samples the mocap tasks samples the arm
too: `collect` rehearses a policy, and a learner can train on it. `compare` runs the same policy on
the mocap simulator and on the arm, with the same noise.
"""

from dataclasses import dataclass
import math

import numpy as np

from lpgftw_ros.deploy.arm.env import ArmEnv
from lpgftw_ros.deploy.arm.kinematics import ArmKinematics
from lpgftw_ros.deploy.arm.plant import ArmPlant, ArmScene, PlantSettings
from lpgftw_ros.deploy.arm.sawyer import kinematic_model, load_arm
from lpgftw_ros.deploy.controller import ArmController
from lpgftw_ros.deploy.observation import ControlSettings, Frame
from lpgftw_ros.deploy.safety.guard import SafetyGuard
from lpgftw_ros.deploy.safety.limits import load_limits, SafetyLimits
from lpgftw_ros.deploy.safety.report import Mode, SafetyReport
from lpgftw_ros.deploy.safety.watch import ArmCommand, Reading, SafeCommand
from lpgftw_ros.domains.rollout import collect
from lpgftw_ros.domains.sampler import make_env
from lpgftw_ros.domains.suites import TaskSpec
from lpgftw_ros.domains.workers import Workers
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.learning.policies import PolicySnapshot

HOME_FRAME = Frame.from_numbers((0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
"""Meta-World's frame is the arm's base."""
OPEN = -1.0
"""Initial position of the gripper."""
JOINT_NOISE_PER_METRE = 1.6
"""rad of joint noise that moves the hand by 1 m (root mean square per axis) at (0, 0.6, 0.2)."""


class PlantLink:
    """A guard and a simulated arm in this process; time passes only while waiting."""

    def __init__(
        self,
        plant: ArmPlant,
        kinematics: ArmKinematics,
        limits: SafetyLimits,
        policy_hash: str,
        command_period: float,
        interface: str,
    ) -> None:
        self.plant, self._kinematics, self._interface = plant, kinematics, interface
        self._tick = limits.period
        if interface != 'trajectory':  # told positions, the arm would be too fast
            self._tick = command_period / math.ceil(command_period / limits.period)
        self._parts = (limits, kinematics, policy_hash, command_period, interface, self._tick)
        self.guard = SafetyGuard(*self._parts)
        self._reading: Reading | None = None

    def now(self) -> float:
        """Return the simulated time."""
        return self.plant.time

    def begin(self, stream: np.random.Generator) -> None:
        """Reset scene, arm, links and guard."""
        variant = int(stream.integers(self.plant.scene.n_variants))
        self.plant.reset(int(stream.integers(2**63)), variant)
        self.guard, self._reading = SafetyGuard(*self._parts), None
        while self._reading is None and self.plant.time < 1.0:  # messages may be lost
            self._listen(self._tick)
        self.guard.activate(self.plant.time)

    def reset_scene(self) -> None:
        """Do nothing: `begin` has placed everything."""

    def send(self, command: ArmCommand) -> None:
        """Send a command to the guard."""
        self.guard.request(command, self.plant.time)

    def wait(self, until: float) -> None:
        """Let time pass for the guard and the arm."""
        while self.plant.time < until - 0.5 * self._tick:
            self._tell(self.guard.tick(self.plant.time))
            self._listen(self._tick)

    def _tell(self, safe: SafeCommand) -> None:
        grip = OPEN if math.isnan(safe.gripper) else safe.gripper
        if self._interface == 'velocity':
            self.plant.command(safe.joint_velocities, grip)
        elif self._interface == 'twist':
            joints = self.plant.joints
            self.plant.command(self._kinematics.least_velocity(joints, safe.hand_velocity), grip)
        elif not safe.silent:
            self.plant.follow(safe.joints, safe.seconds, grip)

    def reading(self) -> Reading | None:
        """Return the newest measurement."""
        return self._reading

    def problem(self) -> str:
        """Return why the guard holds the arm."""
        return self.guard.report.text if self.guard.mode is Mode.LATCHED else ''

    def judge(self, action: Array, hand: Array, target: Array) -> tuple[float, bool]:
        """Return Meta-World's own reward and success, of the true state."""
        return self.plant.scene.judge(action)

    def _listen(self, seconds: float) -> None:
        for reading in self.plant.advance(seconds):
            self._reading = reading
            self.guard.joint_state(reading.joints, self.plant.time)
            self.guard.object_pose(reading.object, self.plant.time)


class RehearsalEnv(ArmEnv):
    """One joint-level arm at one Meta-World task, guarded."""

    def __init__(
        self,
        task: TaskSpec,
        *,
        control: ControlSettings | None = None,
        plant: PlantSettings | None = None,
        limits: SafetyLimits | None = None,
        interface: str = 'velocity',
    ) -> None:
        """Rehearse with the shipped limits, unless others are given."""
        control, arm = control or ControlSettings(), load_arm()
        limits, scene = limits or load_limits(), ArmScene(task, arm)
        limits.require_commands_every(control.period)
        kinematics = ArmKinematics(kinematic_model(scene.xml, arm), arm)
        self.link = PlantLink(
            ArmPlant(scene, arm, plant or PlantSettings()),
            kinematics,
            limits,
            task.name,
            control.period,
            interface,
        )
        controller = ArmController(kinematics, limits, HOME_FRAME, control, task.name)
        super().__init__(self.link, controller, task.horizon)
        self._names = arm.joints

    @property
    def safety(self) -> SafetyReport:
        """What the guard did in this episode."""
        return self.link.guard.report

    def joint_state(self, row: int = 0) -> tuple[tuple[str, ...], Array, Array]:
        """Return names, positions and velocities of the arm joints."""
        return self._names, self.link.plant.joints, self.link.plant.velocities


@dataclass(frozen=True, slots=True)
class Comparison:
    """Success rates with the same noise in both worlds."""

    task: str
    episodes: int
    mocap: float
    """Share of episodes solved on the mocap simulator."""
    arm: float
    """Share solved on the joint-level arm."""
    stopped: int
    """Arm episodes the guard ended."""
    interventions: int
    """Everything the guard counted in all arm episodes."""
    arm_steps: int
    """Control steps per arm episode."""


def mocap_success(
    task: TaskSpec, policy: PolicySnapshot, episodes: int, noise: float, seed: int
) -> float:
    """Return the share of solved episodes on the mocap simulator, observations noisy (m)."""
    pool, random = Workers(workers=1), np.random.default_rng(seed)
    env = make_env(task, episodes, pool)
    try:
        seen, _ = env.reset(seed=seed)
        solved = np.zeros(episodes, dtype=bool)
        for _ in range(env.horizon):
            actions = policy.act(seen + noise * random.standard_normal(seen.shape))
            seen, _, _, _, infos = env.step(actions)
            solved |= infos['success']
    finally:
        env.close()
        pool.close()
    return float(np.mean(solved))


def compare(
    task: TaskSpec,
    policy: PolicySnapshot,
    *,
    control: ControlSettings,
    episodes: int = 20,
    noise: float = 1e-3,
    latency: float = 0.02,
    seed: int = 0,
) -> Comparison:
    """Run a policy in both worlds."""
    links = PlantSettings(
        latency=latency, joint_noise=JOINT_NOISE_PER_METRE * noise, object_noise=noise
    )
    env = RehearsalEnv(task, control=control, plant=links)
    solved, stopped, interventions = [], 0, 0
    for episode in range(episodes):
        batch = collect(env, policy, 1, seed + episode, explore=False, task_name=task.name)
        solved.append(bool(batch.success[0]))
        stopped += int(batch.failed[0])
        interventions += env.safety.count
    return Comparison(
        task=task.name,
        episodes=episodes,
        mocap=mocap_success(task, policy, episodes, noise, seed),
        arm=float(np.mean(solved)),
        stopped=stopped,
        interventions=interventions,
        arm_steps=env.horizon,
    )
