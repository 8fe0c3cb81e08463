"""A MuJoCo model as a tree of frames and as a URDF, made on demand.

RViz and Foxglove draw a robot from its URDF and from tf. Both come from one list of edges here, so
they cannot disagree: an edge is a URDF joint, and its pose at given joint positions is the
transform. Joints that URDF does not have (free and ball joints, mocap bodies) become floating:
their pose comes by tf only. No ROS import here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
import xml.etree.ElementTree as ElementTree

import mujoco
import numpy as np

from lpgftw_ros.learning.arrays import Array

WORLD = 'world'
_VISIBLE_GROUPS = 3
"""MuJoCo draws geoms of groups below this one unless it is told otherwise."""
_PLANE = (4.0, 4.0, 0.002)
"""A box in place of an infinite plane, m."""
_FREE, _BALL, _SLIDE, _HINGE = (
    int(getattr(mujoco.mjtJoint, f'mjJNT_{kind}')) for kind in ('FREE', 'BALL', 'SLIDE', 'HINGE')
)
_URDF_KINDS = {'fixed': 'fixed', 'hinge': 'revolute', 'slide': 'prismatic'}
_NO_TURN = np.array([1.0, 0.0, 0.0, 0.0])


@dataclass(frozen=True, slots=True)
class Pose:
    """Position and rotation; quaternions are (w, x, y, z)."""

    position: Array
    quaternion: Array

    def __matmul__(self, other: 'Pose') -> 'Pose':
        """Return the pose of `other` in the frame of this pose."""
        turn = np.empty(4)
        mujoco.mju_mulQuat(turn, self.quaternion, other.quaternion)
        return Pose(self.position + _rotated(other.position, self.quaternion), turn)

    def inverse(self) -> 'Pose':
        """Return the inverse pose."""
        back = self.quaternion * (1.0, -1.0, -1.0, -1.0)
        return Pose(-_rotated(self.position, back), back)

    @property
    def rpy(self) -> Array:
        """Roll, pitch and yaw in URDF's convention, rad. Shape (3,)."""
        matrix = np.empty(9)
        mujoco.mju_quat2Mat(matrix, self.quaternion)
        r = matrix.reshape(3, 3)
        planar = np.hypot(r[0, 0], r[1, 0])
        if planar < 1e-9:  # looking straight up or down: yaw and roll turn about one axis
            return np.array([np.arctan2(-r[1, 2], r[1, 1]), np.arctan2(-r[2, 0], planar), 0.0])
        return np.array(
            [
                np.arctan2(r[2, 1], r[2, 2]),
                np.arctan2(-r[2, 0], planar),
                np.arctan2(r[1, 0], r[0, 0]),
            ]
        )


@dataclass(frozen=True, slots=True)
class Edge:
    """One joint of the tree, between a link and its parent."""

    name: str
    parent: str
    child: str
    kind: str
    """fixed, hinge, slide, ball, free or mocap."""
    origin: Pose
    """Pose of the child at joint position 0, seen from the parent."""
    axis: Array
    index: int = -1
    """Where the joint's numbers begin in qpos; of a mocap body its number."""
    limits: tuple[float, float] | None = None

    def pose(self, qpos: Array, mocap: Array) -> Pose:
        """Return where the child is, seen from the parent."""
        match self.kind:
            case 'hinge':
                turn = np.empty(4)
                mujoco.mju_axisAngle2Quat(turn, self.axis, qpos[self.index])
                return self.origin @ Pose(np.zeros(3), turn)
            case 'slide':
                return self.origin @ Pose(self.axis * qpos[self.index], _NO_TURN)
            case 'ball':
                numbers = qpos[self.index : self.index + 4]
                return self.origin @ Pose(np.zeros(3), numbers / np.linalg.norm(numbers))
            case 'free' | 'mocap':
                numbers = mocap[self.index] if self.kind == 'mocap' else qpos[self.index :][:7]
                return Pose(numbers[:3], numbers[3:] / np.linalg.norm(numbers[3:]))
        return self.origin


class Tree:
    """Links and joints of a model."""

    def __init__(self, model: Any) -> None:
        """Read a model, with its bodies at their current places."""
        self._model = model
        self.links = [_name(model.body(b), f'body_{b}') for b in range(model.nbody)]
        self.links[0] = WORLD
        self.edges = [edge for body in range(1, model.nbody) for edge in self._edges_of(body)]
        self.fixed = tuple(edge for edge in self.edges if edge.kind == 'fixed')
        self.moving = tuple(edge for edge in self.edges if edge.kind != 'fixed')
        self.joints = tuple(edge for edge in self.edges if edge.kind in ('hinge', 'slide'))

    def poses(self, qpos: Array, mocap: Array) -> dict[str, Pose]:
        """Return where every link is in the world."""
        found = {WORLD: Pose(np.zeros(3), _NO_TURN)}
        for edge in self.edges:
            found[edge.child] = found[edge.parent] @ edge.pose(qpos, mocap)
        return found

    def _edges_of(self, body: int) -> list[Edge]:
        """Return the joints between a body and its parent, in the order MuJoCo applies them."""
        model, link = self._model, self.links[body]
        parent = self.links[model.body_parentid[body]]
        rest = Pose(model.body_pos[body].copy(), model.body_quat[body].copy())
        if model.body_mocapid[body] >= 0:
            index = int(model.body_mocapid[body])
            return [Edge(f'{link}_mocap', parent, link, 'mocap', rest, np.zeros(3), index)]
        first, edges = int(model.body_jntadr[body]), []
        for joint in range(first, first + int(model.body_jntnum[body])):
            name = _name(model.joint(joint), f'joint_{joint}')
            anchor = _anchor(model, joint)
            last = joint == first + model.body_jntnum[body] - 1 and not anchor.any()
            child = link if last else f'{link}_{name}'
            edges.append(_edge(model, joint, name, parent, child, rest))
            parent, rest = child, Pose(-anchor, _NO_TURN)
        if not edges or edges[-1].child != link:
            edges.append(Edge(f'{link}_fixed', parent, link, 'fixed', rest, np.zeros(3)))
        return edges

    def urdf(self, name: str, mesh_folders: Sequence[Path] = ()) -> str:
        """Return the URDF; meshes are named by the files they were read from."""
        robot = ElementTree.Element('robot', name=name)
        bodies = dict(zip(self.links, range(self._model.nbody), strict=True))
        frames = [WORLD, *(edge.child for edge in self.edges)]
        for link in frames:
            element = ElementTree.SubElement(robot, 'link', name=link)
            if link in bodies:
                self._dress(element, bodies[link], mesh_folders)
        for edge in self.edges:
            robot.append(_joint_element(edge))
        ElementTree.indent(robot)
        return ElementTree.tostring(robot, encoding='unicode')

    def _dress(self, link: ElementTree.Element, body: int, mesh_folders: Sequence[Path]) -> None:
        """Give a link its mass and its shapes."""
        model, mass = self._model, float(self._model.body_mass[body])
        if mass > 0.0:
            inertial = ElementTree.SubElement(link, 'inertial')
            _origin(inertial, Pose(model.body_ipos[body], model.body_iquat[body]))
            ElementTree.SubElement(inertial, 'mass', value=_text([mass]))
            x, y, z = (_text([value]) for value in model.body_inertia[body])
            ElementTree.SubElement(
                inertial, 'inertia', ixx=x, iyy=y, izz=z, ixy='0', ixz='0', iyz='0'
            )
        first = int(model.body_geomadr[body])
        for geom in range(first, first + int(model.body_geomnum[body])):
            if model.geom_group[geom] < _VISIBLE_GROUPS and _colour(model, geom)[3] > 0.0:
                for pose, tag, values in _shapes(model, geom, mesh_folders):
                    _visual(link, pose, tag, values, _colour(model, geom))


def _edge(model: Any, joint: int, name: str, parent: str, child: str, rest: Pose) -> Edge:
    index, kind = int(model.jnt_qposadr[joint]), int(model.jnt_type[joint])
    if kind == _FREE:
        return Edge(name, parent, child, 'free', rest, np.zeros(3), index)
    origin = rest @ Pose(_anchor(model, joint), _NO_TURN)
    if kind == _BALL:
        return Edge(name, parent, child, 'ball', origin, np.zeros(3), index)
    axis, zero = model.jnt_axis[joint].copy(), float(model.qpos0[index])
    if kind == _HINGE:
        turn = np.empty(4)
        mujoco.mju_axisAngle2Quat(turn, axis, -zero)
        origin = origin @ Pose(np.zeros(3), turn)
    else:
        origin = origin @ Pose(-zero * axis, _NO_TURN)
    low, high = (float(value) for value in model.jnt_range[joint])
    limits = (low, high) if model.jnt_limited[joint] else None
    word = 'hinge' if kind == _HINGE else 'slide'
    return Edge(name, parent, child, word, origin, axis, index, limits)


def _anchor(model: Any, joint: int) -> Array:
    """Return the point a hinge turns about, in its body."""
    turns = int(model.jnt_type[joint]) in (_HINGE, _BALL)
    return np.array(model.jnt_pos[joint]) if turns else np.zeros(3)


def _joint_element(edge: Edge) -> ElementTree.Element:
    kind = _URDF_KINDS.get(edge.kind, 'floating')
    if edge.kind == 'hinge' and edge.limits is None:
        kind = 'continuous'
    joint = ElementTree.Element('joint', name=edge.name, type=kind)
    _origin(joint, edge.origin)
    ElementTree.SubElement(joint, 'parent', link=edge.parent)
    ElementTree.SubElement(joint, 'child', link=edge.child)
    if kind in ('revolute', 'prismatic', 'continuous'):
        ElementTree.SubElement(joint, 'axis', xyz=_text(edge.axis))
    if kind in ('revolute', 'prismatic'):
        low, high = edge.limits or (-1e3, 1e3)
        limits = {'lower': _text([low]), 'upper': _text([high])}
        ElementTree.SubElement(joint, 'limit', limits, effort='1000', velocity='100')
    return joint


def _shapes(
    model: Any, geom: int, mesh_folders: Sequence[Path]
) -> Iterable[tuple[Pose, str, dict[str, str]]]:
    """Yield a geom as URDF shapes: a capsule is a cylinder and two spheres."""
    pose = Pose(model.geom_pos[geom].copy(), model.geom_quat[geom].copy())
    size, kind = model.geom_size[geom], mujoco.mjtGeom(model.geom_type[geom])
    if kind == mujoco.mjtGeom.mjGEOM_BOX:
        yield pose, 'box', {'size': _text(2.0 * size)}
    elif kind == mujoco.mjtGeom.mjGEOM_PLANE:
        yield pose, 'box', {'size': _text(_PLANE)}
    elif kind in (mujoco.mjtGeom.mjGEOM_SPHERE, mujoco.mjtGeom.mjGEOM_ELLIPSOID):
        yield pose, 'sphere', {'radius': _text(size[:1])}
    elif kind in (mujoco.mjtGeom.mjGEOM_CYLINDER, mujoco.mjtGeom.mjGEOM_CAPSULE):
        yield pose, 'cylinder', {'radius': _text(size[:1]), 'length': _text(2.0 * size[1:2])}
        if kind == mujoco.mjtGeom.mjGEOM_CAPSULE:
            for end in (-size[1], size[1]):
                ball = pose @ Pose(np.array([0.0, 0.0, end]), _NO_TURN)
                yield ball, 'sphere', {'radius': _text(size[:1])}
    elif kind == mujoco.mjtGeom.mjGEOM_MESH:
        mesh = int(model.geom_dataid[geom])
        file = mesh_file(model, mesh, mesh_folders)
        if file is not None:  # MuJoCo moved the mesh to its centre of mass: move it back
            centred = Pose(model.mesh_pos[mesh].copy(), model.mesh_quat[mesh].copy())
            scale = _text(model.mesh_scale[mesh])
            yield pose @ centred.inverse(), 'mesh', {'filename': file.as_uri(), 'scale': scale}


def mesh_file(model: Any, mesh: int, folders: Sequence[Path]) -> Path | None:
    """Return the file a mesh was read from, looked for in these folders."""
    start = int(model.mesh_pathadr[mesh])
    if start < 0:
        return None
    path = model.paths[start : model.paths.index(b'\0', start)].decode()
    found = (folder / path for folder in folders)
    return next((file.resolve() for file in found if file.is_file()), None)


def _visual(
    link: ElementTree.Element, pose: Pose, tag: str, values: dict[str, str], colour: Array
) -> None:
    visual = ElementTree.SubElement(link, 'visual')
    _origin(visual, pose)
    ElementTree.SubElement(ElementTree.SubElement(visual, 'geometry'), tag, values)
    name = 'rgba_' + '_'.join(f'{round(255 * float(value)):02x}' for value in colour)
    material = ElementTree.SubElement(visual, 'material', name=name)
    ElementTree.SubElement(material, 'color', rgba=_text(colour))


def _colour(model: Any, geom: int) -> Array:
    material = int(model.geom_matid[geom])
    colour = model.geom_rgba[geom] if material < 0 else model.mat_rgba[material]
    return np.asarray(colour, dtype=float)


def _origin(parent: ElementTree.Element, pose: Pose) -> None:
    ElementTree.SubElement(parent, 'origin', xyz=_text(pose.position), rpy=_text(pose.rpy))


def _text(values: Iterable[float]) -> str:
    """Return numbers as text for URDF, exact to 1e-9, with tiny values as zero."""
    return ' '.join(f'{round(float(value), 12) + 0.0:.12g}' for value in values)


def _name(part: Any, otherwise: str) -> str:
    return str(part.name) or otherwise


def _rotated(vector: Array, quaternion: Array) -> Array:
    turned = np.empty(3)
    mujoco.mju_rotVecQuat(turned, np.asarray(vector, dtype=float), quaternion)
    return turned
