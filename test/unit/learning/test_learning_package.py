"""The learning library as a whole: what it exposes and what it does not import."""

import subprocess
import sys

from lpgftw_ros import learning

CHECK = """
import sys
import lpgftw_ros.learning
for name in ('rclpy', 'gymnasium', 'mujoco', 'torch', 'yaml'):
    assert name not in sys.modules, name
"""


def test_every_exposed_name_exists():
    assert all(hasattr(learning, name) for name in learning.__all__)


def test_importing_it_loads_neither_ros_nor_a_simulator_nor_torch():
    subprocess.run([sys.executable, '-c', CHECK], check=True)
