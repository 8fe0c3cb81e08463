"""MuJoCo models of the Sawyer, built at run time from the installed Meta-World assets.

Meta-World drags the hand by a weld to a mocap body. Here the weld is removed and every joint gets
a servo, so the same scene is driven like a real arm.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import yaml

from lpgftw_ros.errors import InvalidConfig
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.resources import data_folder, read_yaml

FINGERS = ('rightclaw', 'leftclaw')


@dataclass(frozen=True, slots=True)
class ArmDescription:
    """Names and limits of an arm; j is its number of joints."""

    joints: tuple[str, ...]
    hand: str
    tool_axis: Array
    """Axis of the hand body that points down while the arm works. Shape (3,)."""
    joint_low: Array
    joint_high: Array
    joint_velocity: Array
    joint_effort: Array
    joint_acceleration: Array

    def __post_init__(self) -> None:
        """Check that every limit is finite, given for every joint and not reversed."""
        for name in ('low', 'high', 'velocity', 'effort', 'acceleration'):
            values = getattr(self, f'joint_{name}')
            if values.shape != (len(self.joints),) or not np.isfinite(values).all():
                raise InvalidConfig(
                    f'joint_{name}: expected {len(self.joints)} finite numbers, got {values}'
                )
        if (self.joint_low > self.joint_high).any():
            raise InvalidConfig('joint_low must not be above joint_high')


def read_mapping(file: Path) -> dict[str, Any]:
    """Read a YAML file of names and values."""
    try:
        content = read_yaml(file)
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidConfig(f'{file} cannot be read as YAML: {type(error).__name__}') from error
    if not isinstance(content, dict):
        raise InvalidConfig(f'{file} must map names to values')
    return content


def load_arm(path: Path | None = None) -> ArmDescription:
    """Read an arm description; without a path, the Sawyer that comes with the package."""
    file = path or data_folder('sim/sawyer') / 'arm.yaml'
    content, known = read_mapping(file), set(ArmDescription.__dataclass_fields__)
    if set(content) != known:
        raise InvalidConfig(f'{file} must have exactly the keys {", ".join(sorted(known))}')
    try:
        values: dict[str, Any] = {
            key: np.asarray(value, dtype=np.float64)
            for key, value in content.items()
            if key not in ('joints', 'hand')
        }
    except (TypeError, ValueError) as error:
        raise InvalidConfig(f'{file}: all but joints and hand must be numbers') from error
    return ArmDescription(tuple(content['joints']), content['hand'], **values)


def kinematic_model(xml: str, arm: ArmDescription) -> mujoco.MjModel:
    """Return the bare chain of the arm, for kinematics only: no shapes, fingers or objects."""
    spec = mujoco.MjSpec.from_file(xml)
    for items in (spec.equalities, spec.actuators, spec.geoms, spec.sites, spec.cameras):
        _delete(items)
    for items in (spec.lights, spec.meshes, spec.materials, spec.textures):
        _delete(items)
    for body in list(spec.worldbody.bodies):
        if body.name != 'base':
            spec.detach_body(body)
    for name in FINGERS:
        spec.detach_body(spec.body(name))
    _set_joint_ranges(spec, arm)
    return spec.compile()


def joint_level_model(xml: str, arm: ArmDescription, stiffness: float) -> mujoco.MjModel:
    """Return the task's scene with a position servo on every arm joint instead of the weld.

    A real arm compensates its own weight and runs a stiff joint loop below its command interface:
    gravity compensation on all arm bodies, servo force kp (u - q) - kv qdot within the effort
    limits. Arm servos are actuators 0..j-1, followed by the two fingers.
    """
    spec = mujoco.MjSpec.from_file(xml)
    _delete(spec.equalities)
    spec.detach_body(spec.body('mocap'))
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST  # stiff servos
    fingers = [(actuator.target, actuator.gainprm[0]) for actuator in spec.actuators]
    _delete(spec.actuators)
    _set_joint_ranges(spec, arm)
    _compensate_gravity(spec.body('base'))
    for i, joint in enumerate(arm.joints):
        kp = stiffness * float(arm.joint_effort[i])
        _add_servo(spec, joint, kp, 2.0 * np.sqrt(kp), arm.joint_effort[i])
    for joint, kp in fingers:
        _add_servo(spec, joint, kp, 0.0, None, ctrl_range=1.0)
    return spec.compile()


def _add_servo(
    spec: Any,
    joint: str,
    kp: float,
    kv: float,
    effort: float | None,
    ctrl_range: float | None = None,
) -> None:
    """Add an actuator with force kp (u - q) - kv qdot."""
    servo = spec.add_actuator(name=f'{joint}_servo', target=joint)
    servo.trntype = mujoco.mjtTrn.mjTRN_JOINT
    servo.gaintype = mujoco.mjtGain.mjGAIN_FIXED
    servo.biastype = mujoco.mjtBias.mjBIAS_AFFINE
    servo.gainprm = [kp] + [0.0] * 9
    servo.biasprm = [0.0, -kp, -kv] + [0.0] * 7
    if effort is not None:
        servo.forcelimited, servo.forcerange = True, [-effort, effort]
    if ctrl_range is not None:
        servo.ctrllimited, servo.ctrlrange = True, [-ctrl_range, ctrl_range]


def _set_joint_ranges(spec: Any, arm: ArmDescription) -> None:
    """Give the joints the arm's own limits; Meta-World narrows one of them."""
    for i, name in enumerate(arm.joints):
        joint = spec.joint(name)
        joint.range = [arm.joint_low[i], arm.joint_high[i]]


def _compensate_gravity(body: Any) -> None:
    body.gravcomp = 1.0
    for child in body.bodies:
        _compensate_gravity(child)


def _delete(items: Any) -> None:
    for item in list(items):
        item.delete()
