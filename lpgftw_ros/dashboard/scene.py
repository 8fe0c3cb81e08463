"""A MuJoCo model in the browser: its visible shapes as meshes, moved with every frame."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
import trimesh

from lpgftw_ros.domains.suites import load_suite
from lpgftw_ros.domains.vector_env import scene_model, SceneState
from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.learning.arrays import Array

_ROOT = '/world'
_SHOWN_GROUPS = 3
"""MuJoCo's viewers hide the groups above by default."""
_GEOM = mujoco.mjtGeom
_GOAL_COLOUR, _GOAL_RADIUS = (214, 39, 40), 0.02
_SEEN = 2e-5
"""Smallest move that is sent, m, and of a quaternion's numbers; a pixel is about 1 mm."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A body that moves in the frame of the next drawn body towards the root."""

    body: int
    parent: int
    handle: Any


class SceneView:
    """Draws one task at a time into a viser scene.

    Bodies hang on each other as in the model. So a turning joint is one message to the browsers,
    whatever hangs on it; each message costs the page's process as much as all kinematics.
    """

    def __init__(self, scene: Any) -> None:
        self._scene = scene
        self._handles: list[Any] = []
        self._parts: list[_Part] = []
        self._poses = np.zeros((0, 7))
        """As sent: position and quaternion of each part."""
        self._model: Any = None
        self._data: Any = None
        self._root: Any = None
        self._goal: Any = None
        self._moving = False
        self._followed = 0
        self.key: tuple[str, str, tuple[float, ...]] | None = None
        self.problem = ''

    def load(self, suite: str, task: str, goal: Array, physics: str = '') -> None:
        """Draw another task; `problem` says why it cannot be drawn."""
        self.key = (suite, task, tuple(goal.tolist()))
        self.clear()
        try:
            spec = load_suite(suite).task(task)
            if physics and (ours := _fingerprint(suite, task)) != physics:
                self.problem = (
                    f'{task} has other physics there ({physics[:8]}) than here ({ours[:8]})'
                )
                return
            self._model = scene_model(spec, goal)
        except LpgftwError as error:
            self.problem = f'no model of {task}: {error}'
            return
        if self._model is None:
            self.problem = f'{task} has no model to draw; pictures show it if the bridge sends any'
            return
        self.problem = ''
        self._data = mujoco.MjData(self._model)
        self._draw(goal)

    def clear(self) -> None:
        """Remove everything."""
        for handle in reversed(self._handles):
            handle.remove()
        self._handles, self._parts, self._model, self._goal = [], [], None, None

    def update(self, state: SceneState, follow: bool) -> None:
        """Move everything to its pose; numbers that do not fit the model are ignored."""
        model, data = self._model, self._data
        if model is None or state.positions.shape != (model.nq,):
            return
        if not np.isfinite(state.positions).all():
            return
        data.qpos[:] = state.positions
        if state.mocap.shape == (model.nmocap, 7) and np.isfinite(state.mocap).all():
            data.mocap_pos[:], data.mocap_quat[:] = state.mocap[:, :3], state.mocap[:, 3:]
        mujoco.mj_kinematics(model, data)
        poses = np.array([_relative(data, part.body, part.parent) for part in self._parts])
        for i, moved in enumerate(np.abs(poses - self._poses) > _SEEN):
            if moved[:3].any():
                self._parts[i].handle.position = self._poses[i, :3] = poses[i, :3]
            if moved[3:].any():
                self._parts[i].handle.wxyz = self._poses[i, 3:] = poses[i, 3:]
        if self._moving and follow:  # the world moves, so that every browser sees the body
            x = float(data.xpos[self._followed][0])
            self._root.position = (-x, 0.0, 0.0)

    def _draw(self, goal: Array) -> None:
        model = self._model
        self._moving = bool(model.nv) and model.jnt_type[0] == mujoco.mjtJoint.mjJNT_SLIDE
        self._moving &= model.nmocap == 0
        self._followed = int(model.jnt_bodyid[0]) if model.njnt else 0
        self._root = self._add(self._scene.add_frame(_ROOT, show_axes=False))
        self._add(
            self._scene.add_grid(
                f'{_ROOT}/floor',
                infinite_grid=True,
                cell_size=0.5,
                section_size=1.0,
                fade_distance=25.0,
                position=(0.0, 0.0, _floor_height(model)),
            )
        )
        mujoco.mj_kinematics(model, self._data)
        names = {0: _ROOT}
        for body in range(model.nbody):
            if shapes := list(_shapes(model, body)):
                names[body] = self._add_body(body, names, shapes)
        self._poses = np.array([_relative(self._data, p.body, p.parent) for p in self._parts])
        if goal.size == 3 and np.isfinite(goal).all():
            self._goal = self._add(
                self._scene.add_icosphere(
                    f'{_ROOT}/goal', radius=_GOAL_RADIUS, color=_GOAL_COLOUR, opacity=0.7
                )
            )
            self._goal.position = goal

    def _add_body(self, body: int, names: Mapping[int, str], shapes: list[Any]) -> str:
        """Hang a body on the next one towards the root that is drawn; return its name."""
        model, between, parent = self._model, [], body
        while parent not in names:
            between.append(parent)
            parent = int(model.body_parentid[parent])
        pose, name = _relative(self._data, body, parent), f'{names[parent]}/{body}'
        frame = self._scene.add_frame(name, show_axes=False, position=pose[:3], wxyz=pose[3:])
        self._add(frame)
        if any(model.body_jntnum[b] or model.body_mocapid[b] >= 0 for b in between):
            self._parts.append(_Part(body, parent, frame))
        for i, (vertices, faces, colour, opacity) in enumerate(shapes):
            self._add(
                self._scene.add_mesh_simple(
                    f'{name}/shape_{i}',
                    vertices=vertices.astype(np.float32),
                    faces=faces.astype(np.uint32),
                    color=colour,
                    opacity=None if opacity >= 1.0 else opacity,
                    side='double',
                )
            )
        return name

    def _add(self, handle: Any) -> Any:
        self._handles.append(handle)
        return handle

    @property
    def camera(self) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
        """Camera position and target when a task of this kind is first shown."""
        if self._moving:
            return (0.0, -3.5, 1.4), (0.0, 0.0, 0.5)
        return (1.05, 1.45, 0.85), (0.0, 0.5, 0.15)


def arm_state(model: Any, joints: Mapping[str, float], target: Array | None) -> SceneState:
    """Return a task's scene with the arm, and its only loose object, where they were measured."""
    positions = np.array(model.qpos0)
    for name, value in joints.items():
        joint = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_JOINT, name)
        if joint >= 0:
            positions[model.jnt_qposadr[joint]] = value
    loose = np.flatnonzero(model.jnt_type == mujoco.mjtJoint.mjJNT_FREE)
    if target is not None and len(loose) == 1:
        start = int(model.jnt_qposadr[loose[0]])
        positions[start : start + 3] = target
    return SceneState(positions, np.zeros((0, 7)), np.zeros(0), 0.0)


def _relative(data: Any, body: int, parent: int) -> Array:
    """Return position and quaternion of a body in the frame of another. Shape (7,)."""
    pose = np.empty(7)
    mujoco.mju_negPose(pose[:3], pose[3:], data.xpos[parent], data.xquat[parent])
    mujoco.mju_mulPose(
        pose[:3], pose[3:], pose[:3].copy(), pose[3:].copy(), data.xpos[body], data.xquat[body]
    )
    return pose


def _fingerprint(suite: str, task: str) -> str:
    from lpgftw_ros.domains.sampler import task_fingerprint

    return task_fingerprint(load_suite(suite), task)


def _floor_height(model: Any) -> float:
    """Return the height of the lowest plane, or of the origin."""
    planes = np.flatnonzero(model.geom_type == _GEOM.mjGEOM_PLANE)
    return float(model.geom_pos[planes, 2].min()) if len(planes) else 0.0


def _shapes(model: Any, body: int) -> Iterator[tuple[Array, Any, tuple[int, int, int], float]]:
    """Yield the visible shapes of a body, those of one colour as one mesh."""
    by_colour: dict[tuple[int, int, int, float], list[Any]] = {}
    first, count = model.body_geomadr[body], model.body_geomnum[body]
    for geom in range(first, first + count):
        colour = _colour(model, geom)
        if model.geom_group[geom] >= _SHOWN_GROUPS or colour[3] <= 0.0:
            continue
        mesh = _mesh(model, geom)
        if mesh is None:
            continue
        place = np.eye(4)
        turn = np.zeros(9)
        mujoco.mju_quat2Mat(turn, model.geom_quat[geom])
        place[:3, :3], place[:3, 3] = turn.reshape(3, 3), model.geom_pos[geom]
        mesh.apply_transform(place)
        by_colour.setdefault(colour, []).append(mesh)
    for (red, green, blue, opacity), meshes in by_colour.items():
        whole = trimesh.util.concatenate(meshes)
        yield np.asarray(whole.vertices), whole.faces, (red, green, blue), opacity


def _mesh(model: Any, geom: int) -> Any:
    """Return one shape about its own origin; None for planes, which are drawn as the floor."""
    kind, size = model.geom_type[geom], model.geom_size[geom]
    make = trimesh.creation
    if kind == _GEOM.mjGEOM_BOX:
        return make.box(2.0 * size)
    if kind == _GEOM.mjGEOM_SPHERE:
        return make.icosphere(subdivisions=2, radius=size[0])
    if kind == _GEOM.mjGEOM_ELLIPSOID:
        ball = make.icosphere(subdivisions=2)
        ball.apply_scale(size)
        return ball
    if kind == _GEOM.mjGEOM_CYLINDER:
        return make.cylinder(size[0], 2.0 * size[1], sections=24)
    if kind == _GEOM.mjGEOM_CAPSULE:
        capsule = make.capsule(2.0 * size[1], size[0], count=(16, 16))
        capsule.apply_translation(-capsule.bounds.mean(axis=0))
        return capsule
    if kind == _GEOM.mjGEOM_MESH:
        mesh = model.geom_dataid[geom]
        v0, f0 = model.mesh_vertadr[mesh], model.mesh_faceadr[mesh]
        vertices = model.mesh_vert[v0 : v0 + model.mesh_vertnum[mesh]]
        faces = model.mesh_face[f0 : f0 + model.mesh_facenum[mesh]]
        return trimesh.Trimesh(vertices, faces, process=False)
    return None


def _colour(model: Any, geom: int) -> tuple[int, int, int, float]:
    """Return the colour of a shape: its own, its material's, or the mean of its texture."""
    material = int(model.geom_matid[geom])
    rgba = model.geom_rgba[geom] if material < 0 else model.mat_rgba[material]
    colour = np.array(rgba[:3], dtype=float)
    if material >= 0 and (texture := int(np.ravel(model.mat_texid[material]).max())) >= 0:
        start = int(model.tex_adr[texture])
        channels = int(model.tex_nchannel[texture])
        pixels = int(model.tex_width[texture]) * int(model.tex_height[texture])
        data = model.tex_data[start : start + pixels * channels].reshape(-1, channels)
        colour *= data[:, :3].mean(axis=0) / 255.0
    red, green, blue = (np.clip(colour, 0.0, 1.0) * 255).astype(int).tolist()
    return red, green, blue, float(np.round(rgba[3], 2))
