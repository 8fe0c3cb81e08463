"""The URDF and the frames of a model against MuJoCo itself, in random states."""

from pathlib import Path
import xml.etree.ElementTree as ElementTree

import gymnasium
import metaworld
import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from lpgftw_ros.domains.metaworld.engine import Engine
from lpgftw_ros.graph.urdf import mesh_file, Pose, Tree

STATES = 100
TOLERANCE = 1e-6
ASSETS = Path(metaworld.__file__).parent / 'assets'
FOLDERS = (ASSETS / 'sawyer_xyz',)
TASKS = ('reach', 'drawer-close', 'window-close', 'box-close', 'hammer', 'faucet-open')

ODD = """
<mujoco>
  <worldbody>
    <body name="a" pos="0.1 0.2 0.3" euler="10 20 30">
      <joint name="turn" type="hinge" axis="0.6 0 0.8" pos="0.05 -0.02 0.1" ref="25"/>
      <joint name="shift" type="slide" axis="0 1 0" ref="0.3"/>
      <geom type="capsule" size="0.02 0.1"/>
      <body name="b" pos="0 0 0.4" euler="0 90 0">
        {joint}
        <geom type="box" size="0.1 0.1 0.1"/>
        <body pos="0.3 0 0"><geom type="sphere" size="0.05"/></body>
      </body>
    </body>
    <body name="loose" pos="1 0 0"><freejoint/><geom type="cylinder" size="0.1 0.1"/></body>
    <body name="hand" pos="0 1 0" mocap="true"><geom type="ellipsoid" size="0.1 0.2 0.1"/></body>
  </worldbody>
</mujoco>
"""


HINGE = '<joint name="elbow" type="hinge" axis="1 0 0" pos="0 0.1 0"/>'
BALL = '<joint name="socket" type="ball" pos="0.1 0 0"/>'


def odd(joint):
    return mujoco.MjModel.from_xml_string(ODD.format(joint=joint))


def models():
    for task in TASKS:
        yield task, lambda task=task: Engine(task).model
    yield 'HalfCheetah-v5', lambda: gymnasium.make('HalfCheetah-v5').unwrapped.model
    yield 'Ant-v5', lambda: gymnasium.make('Ant-v5').unwrapped.model
    yield 'odd', lambda: odd(HINGE)


@pytest.fixture(params=[pytest.param(make, id=name) for name, make in models()])
def model(request):
    return request.param()


def random_state(model, rng):
    """Return MuJoCo's data at random joint positions, mocap bodies somewhere."""
    data = mujoco.MjData(model)
    data.qpos[:] = rng.uniform(-2.0, 2.0, model.nq)
    data.mocap_pos[:] = rng.uniform(-1.0, 1.0, data.mocap_pos.shape)
    data.mocap_quat[:] = rng.normal(size=data.mocap_quat.shape)
    data.mocap_quat /= np.linalg.norm(data.mocap_quat, axis=1, keepdims=True)
    mujoco.mj_normalizeQuat(model, data.qpos)
    mujoco.mj_kinematics(model, data)
    return data


def mocap_of(data):
    return np.hstack((data.mocap_pos, data.mocap_quat))


def assert_same_place(pose, position, quaternion, what):
    np.testing.assert_allclose(pose.position, position, atol=TOLERANCE, err_msg=what)
    assert abs(pose.quaternion @ quaternion) > 1.0 - TOLERANCE**2, what


def test_every_frame_is_where_mujoco_has_the_body(model):
    assert_frames_are_bodies(model)


def test_a_ball_joint_is_told_by_its_frame():
    """URDF has no ball joint: it is floating there, and its frame carries the turn."""
    model = odd(BALL)
    assert_frames_are_bodies(model)
    urdf = ElementTree.fromstring(Tree(model).urdf('scene'))
    assert urdf.find("joint[@name='socket']").get('type') == 'floating'


def assert_frames_are_bodies(model):
    tree, rng = Tree(model), np.random.default_rng(0)
    for _ in range(STATES):
        data = random_state(model, rng)
        poses = tree.poses(data.qpos, mocap_of(data))
        for body, link in enumerate(tree.links):
            assert_same_place(poses[link], data.xpos[body], data.xquat[body], link)


def parsed(urdf):
    """Return the URDF as MuJoCo's own URDF parser reads it, every link kept."""
    robot = ElementTree.fromstring(urdf)
    options = ElementTree.SubElement(ElementTree.SubElement(robot, 'mujoco'), 'compiler')
    options.attrib.update(
        fusestatic='false', discardvisual='true', boundmass='0.001', boundinertia='0.001'
    )
    options.attrib['balanceinertia'] = 'true'
    for link in robot.iter('link'):
        for visual in link.findall('visual'):
            link.remove(visual)
    return mujoco.MjModel.from_xml_string(ElementTree.tostring(robot, encoding='unicode'))


def test_a_urdf_parser_puts_every_link_where_mujoco_has_the_body(model):
    tree, rng = Tree(model), np.random.default_rng(1)
    robot = parsed(tree.urdf('scene', FOLDERS))
    names = {robot.body(b).name: b for b in range(robot.nbody)}
    other = mujoco.MjData(robot)
    for _ in range(STATES):
        data = random_state(model, rng)
        for edge in tree.joints:
            address = robot.joint(edge.name).qposadr[0]
            other.qpos[address] = data.qpos[edge.index]
        for edge in tree.moving:  # what a URDF cannot know comes by tf
            if edge.kind in ('free', 'mocap'):
                pose = edge.pose(data.qpos, mocap_of(data))
                address = robot.joint(edge.name).qposadr[0]
                other.qpos[address : address + 7] = [*pose.position, *pose.quaternion]
        mujoco.mj_kinematics(robot, other)
        for body, link in enumerate(tree.links[1:], start=1):
            pose = Pose(other.xpos[names[link]], other.xquat[names[link]])
            assert_same_place(pose, data.xpos[body], data.xquat[body], link)


def test_every_mesh_is_a_file_of_the_installed_assets(model):
    files = [mesh_file(model, mesh, FOLDERS) for mesh in range(model.nmesh)]
    assert all(file is not None and ASSETS.resolve() in file.parents for file in files)
    drawn = ElementTree.fromstring(Tree(model).urdf('scene', FOLDERS)).iter('mesh')
    assert all(mesh.get('filename').startswith('file:///') for mesh in drawn)


def test_a_drawn_mesh_covers_the_vertices_of_the_model():
    """A mesh of a URDF is drawn from its file; MuJoCo has moved it to its centre of mass."""
    model = Engine('drawer-close').model
    tree = Tree(model)
    robot = ElementTree.fromstring(tree.urdf('scene', FOLDERS))
    checked = 0
    for body, link in enumerate(tree.links):
        geoms = [
            g
            for g in range(
                model.body_geomadr[body], model.body_geomadr[body] + model.body_geomnum[body]
            )
            if model.geom_type[g] == mujoco.mjtGeom.mjGEOM_MESH and model.geom_group[g] < 3
        ]
        visuals = [
            v
            for v in robot.find(f"link[@name='{link}']").findall('visual')
            if v.find('geometry/mesh') is not None
        ]
        assert len(visuals) == len(geoms)
        for geom, visual in zip(geoms, visuals, strict=True):
            spec = mujoco.MjSpec()
            element = visual.find('geometry/mesh')
            origin = visual.find('origin')
            mesh = spec.add_mesh(name='m', file=element.get('filename')[len('file://') :])
            mesh.scale = [float(v) for v in element.get('scale').split()]
            spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_MESH, meshname='m')
            alone = spec.compile()
            raw = vertices(alone, 0, Pose(alone.mesh_pos[0], alone.mesh_quat[0]))
            drawn = moved(raw, origin)
            own = vertices(
                model, model.geom_dataid[geom], Pose(model.geom_pos[geom], model.geom_quat[geom])
            )
            np.testing.assert_allclose(drawn.min(axis=0), own.min(axis=0), atol=1e-5)
            np.testing.assert_allclose(drawn.max(axis=0), own.max(axis=0), atol=1e-5)
            checked += 1
    assert checked >= 10


def vertices(model, mesh, pose):
    start = model.mesh_vertadr[mesh]
    points = model.mesh_vert[start : start + model.mesh_vertnum[mesh]].astype(float)
    return np.array([(pose @ Pose(p, np.array([1.0, 0, 0, 0]))).position for p in points])


def moved(points, origin):
    turn = Rotation.from_euler('xyz', [float(v) for v in origin.get('rpy').split()])
    return turn.apply(points) + [float(v) for v in origin.get('xyz').split()]
