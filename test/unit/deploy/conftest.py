from metaworld.asset_path_utils import full_V3_path_for
import numpy as np
import pytest

from lpgftw_ros.deploy.arm.kinematics import ArmKinematics
from lpgftw_ros.deploy.arm.sawyer import kinematic_model, load_arm
from lpgftw_ros.deploy.safety.limits import load_limits

REACH_XML = full_V3_path_for('sawyer_xyz/sawyer_reach_v3.xml')
AT_RESET = np.array([1.8893, -0.5758, -0.9767, 1.642, 0.9429, 1.0437, 2.2928])
AT_RESET.setflags(write=False)
"""Joints after a Meta-World reset, the hand near (0, 0.6, 0.2)."""


@pytest.fixture(scope='session')
def arm():
    return load_arm()


@pytest.fixture(scope='session')
def kinematics(arm):
    return ArmKinematics(kinematic_model(REACH_XML, arm), arm)


@pytest.fixture(scope='session')
def limits():
    return load_limits()


@pytest.fixture(scope='session')
def at_reset():
    return AT_RESET
