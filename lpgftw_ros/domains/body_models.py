"""The three bodies: constants of Gymnasium's v5 tasks, and their compiled models."""

from collections.abc import Mapping
from dataclasses import dataclass
import math
from pathlib import Path

import gymnasium
import mujoco

from lpgftw_ros.domains.body_settings import BODY_PARTS, BodySettings
from lpgftw_ros.errors import InvalidConfig

GRAVITY = 9.81
"""m/s², the nominal one of all three bodies."""


@dataclass(frozen=True, kw_only=True)
class BodyRules:
    """What makes a body a task: control rate, reward, end, start."""

    xml: str
    """File among Gymnasium's MuJoCo assets."""
    frame_skip: int
    """Physics steps per control step."""
    scaled_sizes: int
    """Size numbers a part's factor scales: 1 the radius, 2 also the half length."""
    control_weight: float
    """Cost of the squared action, unclipped."""
    alive_bonus: float = 0.0
    """Paid in every step that ends healthy."""
    height_range: tuple[float, float] | None = None
    """Healthy heights in m; None: the task never ends by itself."""
    angle_range: tuple[float, float] = (-math.inf, math.inf)
    """Healthy torso angles in rad."""
    state_limit: float = math.inf
    """Healthy bound on all positions from the angle on, and on all velocities."""
    velocity_clip: float = math.inf
    """Bound on the velocities in the observation."""
    reset_noise: float
    """Half width of the uniform noise of a start."""
    normal_velocities: bool = False
    """Starting velocities are normal, with standard deviation `reset_noise`."""


RULES: Mapping[str, BodyRules] = {
    'halfcheetah': BodyRules(
        xml='half_cheetah.xml',
        frame_skip=5,
        scaled_sizes=2,
        control_weight=0.1,
        reset_noise=0.1,
        normal_velocities=True,
    ),
    'hopper': BodyRules(
        xml='hopper.xml',
        frame_skip=4,
        scaled_sizes=1,
        control_weight=1e-3,
        alive_bonus=1.0,
        height_range=(0.7, math.inf),
        angle_range=(-0.2, 0.2),
        state_limit=100.0,
        velocity_clip=10.0,
        reset_noise=5e-3,
    ),
    'walker2d': BodyRules(
        xml='walker2d_v5.xml',
        frame_skip=4,
        scaled_sizes=1,
        control_weight=1e-3,
        alive_bonus=1.0,
        height_range=(0.8, 2.0),
        angle_range=(-1.0, 1.0),
        velocity_clip=10.0,
        reset_noise=5e-3,
    ),
}


def compile_body(settings: BodySettings) -> mujoco.MjModel:
    """Return the model of a body: its parts scaled before, its gravity set after compilation.

    The authors' Hopper and Walker2d give capsules by end points and a radius, so that a factor
    widens a part but never lengthens it; Gymnasium's files write the half length out as a second
    number, which stays. Mass and inertia follow from the geometry; HalfCheetah's file fixes the
    total mass at 14 kg.
    """
    rules = RULES[settings.body]
    assets = Path(gymnasium.__file__).parent / 'envs' / 'mujoco' / 'assets'
    spec = mujoco.MjSpec.from_file(str(assets / rules.xml))
    for name, factor in zip(BODY_PARTS[settings.body], settings.parts, strict=True):
        spec.geom(name).size[: rules.scaled_sizes] *= factor
    try:
        model = spec.compile()
    except ValueError as error:
        raise InvalidConfig(f'MuJoCo cannot build {settings}: {error}') from None
    model.opt.gravity[:] = (0.0, 0.0, -GRAVITY * settings.gravity)
    return model
