"""Looking at a row of a Meta-World task: joints and pictures."""

from typing import Any

import mujoco

from lpgftw_ros.domains.metaworld_engine import Engine, engine, Scene
from lpgftw_ros.domains.metaworld_maths import Floats
from lpgftw_ros.domains.metaworld_settings import MetaWorldSettings
from lpgftw_ros.domains.rendering import FrameRenderer

_CAMERA = 'corner2'


class RowView:
    """Looks at the state of a row in this process, wherever it is stepped."""

    def __init__(self, settings: MetaWorldSettings) -> None:
        self._settings = settings
        self._engine: Engine = engine(settings.task)
        self._scenes: dict[int, Scene] = {}
        self._renderer: FrameRenderer | None = None

    def joint_state(self, state: Floats) -> tuple[tuple[str, ...], Floats, Floats]:
        """Return names, positions and velocities of the hinges and slides."""
        sim = self._engine
        sim.load(state)
        simple = (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE))
        joints = [j for j in range(sim.model.njnt) if sim.model.jnt_type[j] in simple]
        names = tuple(sim.model.joint(j).name for j in joints)
        positions = sim.data.qpos[sim.model.jnt_qposadr[joints]]
        return names, positions, sim.data.qvel[sim.model.jnt_dofadr[joints]]

    def frame(self, scene: int, state: Floats, width: int, height: int) -> Any:
        """Return a picture of a state."""
        sim = self._engine
        if scene not in self._scenes:
            vector = self._settings.vectors()[scene]
            self._scenes[scene] = sim.build(vector, self._settings.reward)
        sim.enter(self._scenes[scene])
        sim.load(state)
        mujoco.mj_forward(sim.model, sim.data)
        if self._renderer is None:
            self._renderer = FrameRenderer(sim.model, camera=_CAMERA)
        return self._renderer.frame_of(sim.data, width, height)

    def close(self) -> None:
        """Free the renderer."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
