"""Both documented installs on top of a ROS 2 laid out as apt does, on the system's own Python.

Needs a ROS 2 prefix for /usr/bin/python3 with `ros2` and `colcon` in it: source its setup.bash
and run `make test-install`, or name the prefix in LPGFTW_ROS_PREFIX. Each install downloads
the packages of requirements.txt, so this takes many minutes.
"""

import os
from pathlib import Path
import shutil
import subprocess

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = '/usr/bin/python3'
LAUNCH = 'ros2 launch lpgftw_ros lifelong.launch.py suite:=demo exit_when_done:=true'
SHORT = 'iterations:=1 trajectories:=5 settings:="evaluation_episodes=1;stochastic_episodes=1"'
KEPT = ('HOME', 'PIP_INDEX_URL', 'PIP_FIND_LINKS', 'PIP_CERT', 'ROS_DOMAIN_ID')


def ros_prefix():
    """Return the prefix to rehearse on: named, or the one whose ros2 is on the path."""
    if named := os.environ.get('LPGFTW_ROS_PREFIX'):
        return Path(named)
    ros2 = shutil.which('ros2')
    return Path(ros2).resolve().parents[1] if ros2 else None


PREFIX = ros_prefix()
pytestmark = pytest.mark.skipif(
    PREFIX is None or not (PREFIX / 'setup.bash').is_file() or not Path(PYTHON).exists(),
    reason='no ROS 2 prefix with a ros2 command: source one or set LPGFTW_ROS_PREFIX',
)


def shell(script, folder):
    """Run lines in a fresh bash with nothing but the system and the ROS prefix."""
    environment = {name: os.environ[name] for name in KEPT if name in os.environ}
    environment |= {'PATH': '/usr/bin:/bin', 'MAKEFLAGS': '-j2'}
    done = subprocess.run(
        ['bash', '-c', f'source {PREFIX}/setup.bash\n{script}'],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.fixture(scope='module')
def workspace(tmp_path_factory):
    folder = tmp_path_factory.mktemp('workspace')
    (folder / 'src').mkdir()
    subprocess.run(['git', 'clone', '-q', ROOT, folder / 'src' / 'lpgftw_ros'], check=True)
    return folder


def test_a_build_without_the_step_says_what_to_do(workspace):
    code, output = shell('colcon build', workspace)
    assert code != 0
    assert output.count('run make workspace') >= 1
    assert 'Traceback' not in output


@pytest.mark.timeout(7200)
def test_a_workspace_launches_after_the_documented_step(workspace):
    shutil.rmtree(workspace / 'build', ignore_errors=True)
    code, output = shell('make -C src/lpgftw_ros workspace && colcon build', workspace)
    assert code == 0, output
    code, output = shell(f'source install/setup.bash\n{LAUNCH} {SHORT}', workspace)
    assert code == 0, output
    assert 'all tasks are learned' in output


@pytest.mark.timeout(7200)
def test_make_on_top_of_ros_launches_without_a_workspace(workspace):
    clone = workspace / 'src' / 'lpgftw_ros'
    code, output = shell(f'make setup PYTHON={PYTHON}', clone)
    assert code == 0, output
    code, output = shell(f'source .venv/local_setup.bash\n{LAUNCH} {SHORT}', clone)
    assert code == 0, output
    assert 'all tasks are learned' in output
