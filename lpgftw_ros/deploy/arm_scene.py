"""A Meta-World task around the joint-level arm: where things are, what is seen, what it pays.

The scene (placements, reward, success) is the one the mocap simulator uses; only the arm differs.
"""

import mujoco
import numpy as np

from lpgftw_ros.deploy.sawyer_model import ArmDescription, joint_level_model
from lpgftw_ros.domains.metaworld_engine import engine
from lpgftw_ros.domains.metaworld_settings import MetaWorldSettings
from lpgftw_ros.domains.suites import TaskSpec
from lpgftw_ros.errors import InvalidConfig
from lpgftw_ros.learning.arrays import Array

STIFFNESS = 25.0
"""Servo gain per unit of effort limit, 1/rad: full effort at 2.3 degrees of error."""


class ArmScene:
    """One task's model with joint servos, and upstream's judgement of its states."""

    def __init__(self, task: TaskSpec, arm: ArmDescription) -> None:
        if task.kind != 'metaworld':
            raise InvalidConfig(f"'{task.name}' is no Meta-World task: there is no arm in it")
        settings = MetaWorldSettings.from_mapping(task.settings)
        if settings.observation != 'paper6':
            raise InvalidConfig(f"'{task.name}' must use the observation paper6 on an arm")
        self.name = task.name
        self._engine = engine(settings.task)
        self._scenes = [self._engine.build(v, settings.reward) for v in settings.vectors()]
        self.xml: str = self._engine.env.model_name
        self.model = joint_level_model(self.xml, arm, STIFFNESS)
        self.data = mujoco.MjData(self.model)
        self._scene = self._scenes[0]

    @property
    def n_variants(self) -> int:
        """Number of placements a reset may draw from."""
        return len(self._scenes)

    def reset(self, variant: int = 0) -> None:
        """Put arm, object and fixtures where Meta-World's reset leaves them, at rest."""
        self._scene = self._scenes[variant]
        self._engine.enter(self._scene)
        self._engine.load(self._scene.state)
        theirs, ours = self._engine.model, self.model
        # The two models differ only by the mocap body and its site.
        ours.body_pos[:] = np.delete(theirs.body_pos, theirs.body('mocap').id, axis=0)
        ours.site_pos[:] = np.delete(theirs.site_pos, theirs.site('mocap').id, axis=0)
        mujoco.mj_resetData(ours, self.data)
        self.data.qpos[:] = self._engine.data.qpos
        mujoco.mj_forward(ours, self.data)

    def reset_objects(self, arm_coordinates: int) -> None:
        """Put everything behind the first coordinates (arm and fingers) back, at rest."""
        self._engine.enter(self._scene)
        self._engine.load(self._scene.state)
        self.data.qpos[arm_coordinates:] = self._engine.data.qpos[arm_coordinates:]
        self.data.qvel[arm_coordinates:] = 0.0
        mujoco.mj_forward(self.model, self.data)

    def object_position(self) -> Array:
        """Return the object point the policy sees. Shape (3,)."""
        self._mirror()
        return np.array(self._engine.env._get_pos_objects()[:3], dtype=np.float64)

    @property
    def goal(self) -> Array:
        """The target of the task. Shape (3,)."""
        self._engine.enter(self._scene)
        return np.array(self._engine.env._target_pos, dtype=np.float64)

    def judge(self, action: Array) -> tuple[float, bool]:
        """Return upstream's reward and whether the task is solved in the present state."""
        self._mirror()
        mujoco.mj_forward(self._engine.model, self._engine.data)
        observation = self._engine.observe(None)
        reward = float(self._engine.env.compute_reward(action, observation)[0])
        return reward, bool(self._engine.criterion(self._engine.env, observation))

    def _mirror(self) -> None:
        """Put the positions of this model into upstream's."""
        self._engine.enter(self._scene)
        self._engine.data.qpos[:] = self.data.qpos
        mujoco.mj_kinematics(self._engine.model, self._engine.data)
