"""What the bridge knows of the arm."""

from unittest.mock import MagicMock

from geometry_msgs.msg import PoseStamped
import pytest
from sensor_msgs.msg import JointState

from lpgftw_ros.nodes.arm_link import RosLink
from lpgftw_ros.nodes.arm_parameters import ArmBridgeConfig
from lpgftw_ros.resources import data_folder


@pytest.fixture
def link():
    limits = str(data_folder('sim/sawyer') / 'safety.yaml')
    config = ArmBridgeConfig(limits_file=limits, reset='operator')
    return RosLink(MagicMock(), config, config.arm_side(), None)


def test_an_arm_can_be_held_while_the_object_is_not_seen_after_a_reset(link, monkeypatch):
    joints = link._side.arm.joints
    link._on_joints(JointState(name=list(joints), position=[0.0] * len(joints)))
    link._on_object(PoseStamped())
    monkeypatch.setattr(link, '_await_reset', lambda reset: None)
    link.reset_scene()
    assert (link.joints() is None, link.reading()) == (False, None)
