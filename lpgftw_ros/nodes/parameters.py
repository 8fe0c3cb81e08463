"""Parameters of the nodes as plain dataclasses; ROS parameters are declared from them.

Bring-up gives a node every option that has the name of one of its fields, so a parameter that is
to be set at launch is one field here and one field of `bringup.GraphOptions`.
"""

from dataclasses import dataclass

from lpgftw_ros.learning.config import check_settings, setting

AS_PRESET = -1
"""Stands for 'as the preset of the suite says' where a number is expected."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeConfig:
    """What every node of the graph takes."""

    autostart: bool = setting(True, 'configure and activate without being asked')
    run_id: str = setting('', 'names this run; a restarted node finds its own run by it')

    def __post_init__(self) -> None:
        """Reject values outside their range."""
        check_settings(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class BridgeConfig(NodeConfig):
    """Parameters of `sim_bridge`."""

    suite: str = setting('demo', 'suite name or YAML file of the tasks')
    workers: int = setting(0, 'simulation workers, 0: one per core', min=0, max=1024)
    realtime_factor: float = setting(
        0.0, 'simulated seconds per second, 0: as fast as possible', min=0.0, max=1000.0
    )
    resend_period: float = setting(
        0.5, 'seconds without an answer until an observation is sent again', min=0.05, max=60.0
    )
    action_timeout: float = setting(
        30.0, 'seconds without an answer until a rollout is given up', min=0.1, max=3600.0
    )
    image_period: float = setting(
        0.0, 'seconds between pictures of row 0, 0: none', min=0.0, max=3600.0
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyConfig(NodeConfig):
    """Parameters of `policy`."""

    policy_from: str = setting('', 'run folder or exported policy to serve without a learner')
    patience: float = setting(
        1.0, 'seconds a policy may be on its way before this is reported', min=0.0, max=3600.0
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class LearnerConfig(NodeConfig):
    """Parameters of `learner`; the options of `lpgftw train`."""

    suite: str = setting('demo', 'suite name or YAML file of the tasks')
    learner: str = setting('lpg-ftw', 'method: lpg-ftw, stl, ewc, ewc-h, er or pg-ella')
    seed: int = setting(
        AS_PRESET, 'root of all random numbers, -1: as the preset says', min=-1, max=2**31 - 1
    )
    tasks: str = setting('', 'how many tasks or their names, comma-separated; empty: all')
    iterations: int = setting(
        AS_PRESET, 'policy steps per task, -1: as the preset says', min=-1, max=100_000
    )
    trajectories: int = setting(
        AS_PRESET, 'trajectories per policy step, -1: as the preset says', min=-1, max=10_000
    )
    preset: str = setting('published', 'whose equations: published or paper')
    settings: str = setting('', 'further settings, KEY=VALUE separated by semicolons')
    source: str = setting('', 'finished STL run pg-ella starts from')
    out: str = setting('', 'run folder; empty: runs/<suite>-<learner>-<seed>')
    resume: bool = setting(False, 'continue the run in out')
    autotrain: bool = setting(True, 'learn the tasks in sequence without being asked')
    exit_when_done: bool = setting(False, 'end the process when all tasks are learned')


NODES: dict[str, type[NodeConfig]] = {
    'sim_bridge': BridgeConfig,
    'policy': PolicyConfig,
    'learner': LearnerConfig,
}
