"""An arm as an environment, when its link fails."""

import numpy as np
import pytest

from lpgftw_ros.deploy.arm.env import ArmStopped
from lpgftw_ros.deploy.rehearsal import RehearsalEnv
from lpgftw_ros.domains.suites import load_suite


def test_an_arm_that_falls_silent_ends_the_rollout_instead_of_the_episode(monkeypatch):
    env = RehearsalEnv(load_suite('demo').task('reach'))
    env.reset(seed=0)
    monkeypatch.setattr(env.link, 'reading', lambda: None)
    with pytest.raises(ArmStopped, match='no fresh'):
        env.step(np.zeros((1, 4)))
