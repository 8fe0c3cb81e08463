"""The scene node shows what the bridge says, to those who watch, and to nobody else."""

import importlib.util
import time
import xml.etree.ElementTree as ElementTree

import imageio.v3 as imageio
import mujoco
import numpy as np
import pytest
from sensor_msgs.msg import CameraInfo, CompressedImage
from std_msgs.msg import String

from lpgftw_interfaces.msg import RolloutKey, ScenePose
from lpgftw_ros.domains.sampler import Sampler
from lpgftw_ros.domains.suites import load_suite
from lpgftw_ros.domains.vector_env import scene_model
from lpgftw_ros.nodes import qos

from .lifelong_graph import GraphClient

pytestmark = [pytest.mark.ros, pytest.mark.slow]
TASKS = ('reach', 'drawer-close')
TOLERANCE = 1e-6


def without(package):
    return pytest.mark.skipif(
        importlib.util.find_spec(package) is None,
        reason=f'{package} is not installed here; source ROS first',
    )


class Bridge:
    """Publishes true poses of a task, as sim_bridge does."""

    def __init__(self, client, task):
        self.task, self._client = task, client
        self._sampler = Sampler('demo', 1)
        self.env = self._sampler.env(task, 1)
        self.env.reset(seed=0)
        self._poses = client.node.create_publisher(ScenePose, 'scene_pose', qos.MEASUREMENT)
        self._rng, self.sent, self.states = np.random.default_rng(0), 0, {}

    def tell(self):
        """Take a step and publish where everything is."""
        if not self.env.alive.any():
            self.env.reset(seed=0)
        self.env.step(self._rng.uniform(-1.0, 1.0, (1, self.env.act_dim)))
        state, self.sent = self.env.scene_state(0), self.sent + 1
        message = ScenePose(key=RolloutKey(task=self.task, rollout=1), suite='demo')
        message.header.stamp.sec = self.sent
        message.step, message.time = self.sent, state.time
        message.qpos, message.mocap = state.positions.tolist(), state.mocap.ravel().tolist()
        message.goal = state.goal.tolist()
        self.states[self.sent] = state
        self._poses.publish(message)

    def tell_until(self, condition, timeout=60.0):
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if condition():
                return True
            self.tell()
            self._client.spin(0.02)
        return False

    @property
    def heard(self):
        return self._poses.get_subscription_count() > 0

    def close(self):
        self._sampler.close()


@pytest.fixture(scope='module')
def client(ros_domain):
    client = GraphClient()
    yield client
    client.close()


@pytest.fixture(params=TASKS)
def bridge(request, client, node_process):
    node = node_process('scene', '-r', '__ns:=/lifelong')
    bridge = Bridge(client, request.param)
    yield bridge
    bridge.close()
    node.stop(2)


def test_nobody_watches_nobody_listens(client, bridge):
    assert not client.until(lambda: bridge.heard, 4.0)
    watcher = client.node.create_subscription(
        String, 'robot_description', lambda message: None, qos.LATCHED
    )
    assert client.until(lambda: bridge.heard, 60.0)
    client.node.destroy_subscription(watcher)
    assert client.until(lambda: not bridge.heard, 60.0)


def test_the_description_is_the_model_of_the_task(client, bridge):
    texts = []
    watcher = client.node.create_subscription(
        String, 'robot_description', texts.append, qos.LATCHED
    )
    assert bridge.tell_until(lambda: texts), 'no description'
    client.node.destroy_subscription(watcher)
    robot = ElementTree.fromstring(texts[0].data)
    model = scene_model(load_suite('demo').task(bridge.task), bridge.env.scene_state(0).goal)
    links = {link.get('name') for link in robot.iter('link')}
    assert {model.body(b).name for b in range(1, model.nbody) if model.body(b).name} <= links
    joints = {j.get('name'): j.get('type') for j in robot.iter('joint')}
    assert joints['right_j0'] == 'revolute'


@without('tf2_msgs')
def test_frames_are_where_mujoco_has_the_bodies(client, bridge):
    from tf2_msgs.msg import TFMessage

    static, moving = {}, {}

    def keep(message, into):
        for transform in message.transforms:
            into.setdefault(transform.header.stamp.sec, {})[transform.child_frame_id] = transform

    client.node.create_subscription(TFMessage, '/tf', lambda m: keep(m, moving), qos.FRAMES)
    client.node.create_subscription(
        TFMessage, '/tf_static', lambda m: keep(m, static), qos.LATCHED
    )
    assert bridge.tell_until(lambda: static and len(moving) > 20), 'no frames'
    model = scene_model(load_suite('demo').task(bridge.task), bridge.env.scene_state(0).goal)
    data, fixed = mujoco.MjData(model), next(iter(static.values()))
    for stamp in list(moving)[-10:]:
        state = bridge.states[stamp]
        data.qpos[:] = state.positions
        data.mocap_pos[:], data.mocap_quat[:] = state.mocap[:, :3], state.mocap[:, 3:]
        mujoco.mj_kinematics(model, data)
        frames = fixed | moving[stamp]
        for body in range(1, model.nbody):
            if name := model.body(body).name:
                place = position_in_world(name, frames)
                np.testing.assert_allclose(place, data.xpos[body], atol=TOLERANCE, err_msg=name)


def position_in_world(name, frames):
    point = np.zeros(3)
    while name != 'world':
        transform = frames[name]
        t, r = transform.transform.translation, transform.transform.rotation
        turned = np.empty(3)
        mujoco.mju_rotVecQuat(turned, point, np.array([r.w, r.x, r.y, r.z]))
        point = turned + np.array([t.x, t.y, t.z])
        name = transform.header.frame_id
    return point


@without('visualization_msgs')
def test_markers_show_goal_objects_and_where_the_hand_went(client, bridge):
    from visualization_msgs.msg import Marker, MarkerArray

    arrays = []
    watcher = client.node.create_subscription(MarkerArray, 'markers', arrays.append, qos.LOCK_STEP)
    assert bridge.tell_until(lambda: len(arrays) > 10), 'no markers'
    client.node.destroy_subscription(watcher)
    shown = {marker.ns: marker for marker in arrays[-1].markers}
    goal = shown['goal'].pose.position
    np.testing.assert_allclose([goal.x, goal.y, goal.z], bridge.env.scene_state(0).goal)
    assert shown['hand'].type == Marker.LINE_STRIP
    assert len(shown['hand'].points) > 5
    assert 'object' in shown


def test_a_picture_comes_with_its_camera(client, bridge):
    pictures, cameras = [], []
    watchers = [
        client.node.create_subscription(
            CompressedImage, 'image/compressed', pictures.append, qos.SENSOR
        ),
        client.node.create_subscription(CameraInfo, 'camera_info', cameras.append, qos.SENSOR),
    ]
    assert bridge.tell_until(lambda: pictures and cameras), 'no picture'
    for watcher in watchers:
        client.node.destroy_subscription(watcher)
    frame = imageio.imread(bytes(pictures[-1].data), extension='.jpeg')
    camera = next(c for c in cameras if c.header.stamp == pictures[-1].header.stamp)
    assert frame.shape == (camera.height, camera.width, 3)
    assert frame.std() > 5.0, 'the picture is empty'
    assert camera.k[0] == camera.k[4] > 0.0
