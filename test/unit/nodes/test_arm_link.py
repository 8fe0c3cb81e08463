"""What the bridge knows of the arm."""

from unittest.mock import MagicMock

from geometry_msgs.msg import PoseStamped
import pytest
from sensor_msgs.msg import JointState

from lpgftw_ros.graph.parameters import ArmBridgeParameters
from lpgftw_ros.nodes.arm_link import RosLink
from lpgftw_ros.resources import data_folder


@pytest.fixture
def link():
    limits = str(data_folder('sim/sawyer') / 'safety.yaml')
    config = ArmBridgeParameters(limits_file=limits, reset='operator')
    return RosLink(MagicMock(), config, config.arm_side(), None)


def pose(frame):
    message = PoseStamped()
    message.header.frame_id = frame
    return message


@pytest.mark.parametrize(('frame', 'taken'), [('base', True), ('', False), ('camera', False)])
def test_a_pose_without_a_frame_is_not_taken(link, frame, taken):
    link._on_object(pose(frame))
    assert (link._object is not None) is taken


def test_an_arm_can_be_held_while_the_object_is_not_seen_after_a_reset(link, monkeypatch):
    joints = link._side.arm.joints
    link._on_joints(JointState(name=list(joints), position=[0.0] * len(joints)))
    link._on_object(pose('base'))
    monkeypatch.setattr(link, '_await_reset', lambda reset: None)
    link.reset_scene()
    assert (link.joints() is None, link.reading()) == (False, None)
