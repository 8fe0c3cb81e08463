import subprocess
import sys

import pytest

from lpgftw_ros.resources import data_folder

pytestmark = pytest.mark.ros


def ended(*words):
    done = subprocess.run(
        [sys.executable, '-m', *words], capture_output=True, text=True, timeout=120, check=False
    )
    lines = (done.stdout + done.stderr).strip().splitlines()
    return done.returncode, lines


@pytest.mark.parametrize(
    ('options', 'words'),
    [
        (['--siute', 'demo'], ['--siute']),
        (['--suite', 'dmeo'], ['dmeo', 'demo']),
        (['--seed', 'x'], ['--seed', 'x']),
        (['--realtime-factor', '-1'], ['--realtime-factor', 'from 0 to 1000', '-1']),
        (['--learner', 'magic'], ['magic', 'lpg-ftw']),
        (['--discovery-range', 'LAN'], ['LAN', 'LOCALHOST']),
        (['--params-file', '/nowhere.yaml'], ['/nowhere.yaml']),
        (['--suite', 'demo', '--tasks', 'fly'], ['fly', 'reach']),
    ],
)
def test_up_refuses_bad_options_in_one_line(ros_domain, options, words):
    code, lines = ended('lpgftw_ros.cli', 'up', *options)
    assert code == 2
    assert len(lines) == 1
    assert all(word in lines[0] for word in words)


@pytest.mark.parametrize(
    ('arguments', 'words'),
    [
        (['-p', 'workers:=-3'], ['workers', '0 to 1024', '-3']),
        (['-p', 'realtime_factor:=1'], ['realtime_factor', '1.0']),
        (['-p', 'autostart:=perhaps'], ['autostart', 'true or false', 'perhaps']),
        (['-p', 'broken'], ['bad ROS arguments']),
    ],
)
def test_a_node_refuses_bad_parameters_in_one_line(ros_domain, arguments, words):
    code, lines = ended('lpgftw_ros.nodes.sim_bridge', '--ros-args', *arguments)
    assert code == 2
    text = [line for line in lines if not line.startswith('[ERROR]')]  # rcl's own word
    assert len(text) == 1
    assert all(word in text[0] for word in words)


@pytest.mark.parametrize(
    ('arguments', 'words'),
    [
        (['-p', 'goal:=[1.0, 2.0]'], ['goal', 'three numbers', "'1.0 2.0'"]),
        (['-p', 'task:=drawer-close'], ["'goal'", 'give goal']),
        (['-p', 'frame_xyz:=[0.0, 0.0]'], ['frame_xyz', 'three numbers']),
        (['-p', 'rate:=5.0'], ['rate 5 Hz', '0.1575 s', 'action_timeout']),
    ],
)
def test_the_arm_bridge_says_what_it_needs(ros_domain, arguments, words):
    limits = data_folder('sim/sawyer') / 'safety.yaml'
    usual = ['-p', 'autostart:=true', '-p', 'reward:=reach', '-p', f'limits_file:={limits}']
    code, lines = ended('lpgftw_ros.nodes.arm_bridge', '--ros-args', *usual, *arguments)
    assert (code, len(lines)) == (2, 1), lines
    assert 'cannot configure' in lines[0]
    assert all(word in lines[0] for word in words)
