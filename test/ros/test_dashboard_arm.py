"""The page beside an arm, in a real browser: it shows how near the limits are, and only stops."""

from pathlib import Path
import socket
import sys

import pytest

from lpgftw_interfaces.msg import SafetyState

from .arm_cell import ArmCell, PATIENT, write_limits, write_reach_policy, write_suite

sys.path.insert(0, str(Path(__file__).parents[2] / 'scripts'))
from browser import Browser, installed

pytestmark = [
    pytest.mark.ros,
    pytest.mark.alone,
    pytest.mark.slow,
    pytest.mark.skipif(installed() is None, reason='no Chromium: make test-browser installs it'),
]


@pytest.fixture(scope='module')
def port():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


@pytest.fixture(scope='module')
def cell(ros_domain, port, tmp_path_factory):
    folder = tmp_path_factory.mktemp('cell')
    cell = ArmCell(
        policy_file=write_reach_policy(folder),
        suite=write_suite(folder, horizon=2000),
        limits_file=write_limits(folder, **PATIENT),
        dashboard=True,
        dashboard_port=port,
    )
    yield cell
    cell.stop()


@pytest.fixture(scope='module')
def browser(cell, port):
    cell.ready()
    with Browser(f'http://127.0.0.1:{port}', width=900, height=500) as page:
        page.wait_for('Learning', 90)
        yield page
        assert page.foreign_requests() == []
        assert page.errors == []


def test_the_arm_and_its_limits_are_shown_as_they_are_measured(cell, browser):
    cell.moving_episode()
    browser.wait_for('reach, as it is measured', 60)
    browser.press('Arm', 'tab')
    text = browser.wait_for('hand speed', 30)
    for word in ('OK', 'tool tilt', 'of 0.1 m/s', 'age of commands', 'safety_guard'):
        assert word in text


def test_the_only_buttons_are_those_that_stop(cell, browser):
    seen = set()
    for tab in ('Scene', 'Learning', 'Tasks', 'Knowledge', 'Arm'):
        browser.press(tab, 'tab')
        seen |= set(browser.run(BUTTONS))
    assert seen - {''} == {'Pause', 'Stop', 'EMERGENCY STOP'}


BUTTONS = """[...document.querySelectorAll('button:not([role])')]
    .filter(e => e.getClientRects().length).map(e => e.innerText.trim())"""


def test_the_emergency_stop_holds_the_arm_until_it_is_reset_by_hand(cell, browser):
    episode = cell.moving_episode()
    browser.press('Arm', 'tab')
    browser.press('EMERGENCY STOP')
    assert cell.until(lambda: cell.level == SafetyState.LATCHED, 10.0)
    assert cell.code == 'emergency_stop'
    browser.wait_for('emergency_stop: done')
    browser.wait_for('LATCHED (emergency_stop)')
    assert cell.until(cell.stands, 10.0)
    assert cell.until(episode.done, 30.0)
    assert not episode.result().result.success
    cell.reset()
    browser.wait_for('OK (ok)')
