from dataclasses import fields
from pathlib import Path

import pytest

from lpgftw_ros.deploy.safety_report import CODES
from lpgftw_ros.nodes.arm_parameters import ArmBridgeConfig, GuardConfig, SawyerSimConfig

DOC = (Path(__file__).resolve().parents[2] / 'docs' / 'deploy.md').read_text()


@pytest.mark.parametrize('code', CODES)
def test_every_safety_stop_is_explained(code):
    assert f'`{code}`' in DOC


@pytest.mark.parametrize('kind', [ArmBridgeConfig, GuardConfig, SawyerSimConfig])
def test_every_parameter_of_the_arm_side_is_named(kind):
    assert [item.name for item in fields(kind) if f'`{item.name}`' not in DOC] == []
