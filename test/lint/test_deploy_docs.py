from dataclasses import fields
from pathlib import Path

import pytest

from lpgftw_ros.deploy.safety.report import CODES
from lpgftw_ros.graph.parameters import (
    ArmBridgeParameters,
    GuardParameters,
    SawyerSimParameters,
)

ROOT = Path(__file__).resolve().parents[2]
DOC = (ROOT / 'docs' / 'deploy.md').read_text()


@pytest.mark.parametrize('code', CODES)
def test_every_safety_stop_is_explained(code):
    assert f'`{code}`' in DOC


@pytest.mark.parametrize(('level', 'listed'), [('STOPPED', True), ('LATCHED', False)])
def test_the_message_says_that_the_deadman_does_not_latch(level, listed):
    message = (ROOT / 'lpgftw_interfaces' / 'msg' / 'SafetyState.msg').read_text()
    line = next(line for line in message.splitlines() if line.startswith(f'uint8 {level}='))
    assert ('deadman' in line) == listed


@pytest.mark.parametrize('kind', [ArmBridgeParameters, GuardParameters, SawyerSimParameters])
def test_every_parameter_of_the_arm_side_is_named(kind):
    assert [item.name for item in fields(kind) if f'`{item.name}`' not in DOC] == []
