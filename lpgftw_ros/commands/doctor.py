"""`lpgftw doctor`: check this machine and say what to do."""

import argparse
from collections.abc import Callable
from dataclasses import asdict, dataclass
import importlib
import importlib.util
import json
import os
import platform
import shutil
import socket
import subprocess
import sys

from rich.console import Console
from rich.text import Text

NEEDED_MEMORY = 4.0  # GB, for the largest solve of the published experiments
RTPS_PORT, PORTS_PER_DOMAIN = 7400, 250  # DDS: domain d uses 7400 + 250 d and up
NEWEST_DOMAIN = 232


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    name: str
    ok: bool
    text: str
    """What was found, or what to do."""
    required: bool = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument('--json', action='store_true', help='print the findings as JSON')


def run(args: argparse.Namespace) -> int:
    """Run all checks; exit code 1 if a required one fails."""
    findings = [_guarded(check) for check in CHECKS]
    bad = any(finding.required and not finding.ok for finding in findings)
    if args.json:
        print(json.dumps({'ok': not bad, 'checks': [asdict(f) for f in findings]}, indent=2))
        return int(bad)
    console = Console(highlight=False, soft_wrap=True)
    for finding in findings:
        mark = 'ok' if finding.ok else ('FAIL' if finding.required else 'note')
        style = {'ok': 'green', 'FAIL': 'bold red', 'note': 'yellow'}[mark]
        console.print(Text(f'{mark:5}', style), Text(f'{finding.name:12}'), finding.text)
    return int(bad)


def _guarded(check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except Exception as error:
        name = check.__name__.removeprefix('check_').replace('_', ' ')
        return Finding(name, False, f'could not be checked: {type(error).__name__}: {error}')


def check_python() -> Finding:
    """The Python version, for which all pinned packages must exist."""
    version = platform.python_version()
    ok = (3, 11) <= sys.version_info[:2] <= (3, 13)
    return Finding(
        'python', ok, f'{version} in {sys.prefix}' if ok else f'{version}: use 3.11-3.13'
    )


def check_compilers() -> Finding:
    """A C++ compiler and CMake, for the interface package."""
    found = {name: shutil.which(name) for name in ('g++', 'make', 'cmake')}
    if found['cmake'] is None and importlib.util.find_spec('cmake') is not None:
        found['cmake'] = 'package'
    missing = [name for name, path in found.items() if path is None]
    todo = f'missing {", ".join(missing)}: sudo apt-get install -y {" ".join(missing)}'
    return Finding('compilers', not missing, todo if missing else 'g++, make, cmake')


def check_ros() -> Finding:
    """Rclpy importable, and where it comes from."""
    if importlib.util.find_spec('rclpy') is None:
        return Finding('ros', False, 'rclpy is missing: run make setup, or source ROS 2 Jazzy')
    import rclpy

    distro = os.environ.get('ROS_DISTRO', '')
    domain = os.environ.get('ROS_DOMAIN_ID', '0')
    if not domain.isdigit() or int(domain) > NEWEST_DOMAIN:
        return Finding('ros', False, f'ROS_DOMAIN_ID is {domain}: set it to 0..{NEWEST_DOMAIN}')
    source = f'ROS 2 {distro}' if distro and sys.prefix not in rclpy.__file__ else 'wheels'
    reach = os.environ.get('ROS_AUTOMATIC_DISCOVERY_RANGE', 'unset (bring-up uses LOCALHOST)')
    return Finding('ros', True, f'rclpy from {source}, domain {domain}, discovery {reach}')


def check_middleware() -> Finding:
    """A message from a publisher reaches a subscription."""
    from lpgftw_ros.nodes.steering import round_trip

    seconds = round_trip(timeout=5.0)
    name = os.environ.get('RMW_IMPLEMENTATION', 'rmw_fastrtps_cpp')
    if seconds is None:
        return Finding(
            'middleware', False, f'{name}: no message arrived; check RMW_IMPLEMENTATION'
        )
    return Finding('middleware', True, f'{name}: a message arrives, {1e3 * seconds:.1f} ms')


def check_interfaces() -> Finding:
    """Our message types and their type support load."""
    from lpgftw_ros.nodes.steering import interface_count

    try:
        count = interface_count()
    except (ImportError, AttributeError) as error:
        todo = 'run make setup, or build and source the workspace'
        return Finding('interfaces', False, f'lpgftw_interfaces does not load ({error}): {todo}')
    return Finding('interfaces', True, f'lpgftw_interfaces: {count} types')


def check_simulator() -> Finding:
    """MuJoCo steps, Meta-World and Gymnasium import."""
    import gymnasium
    import metaworld
    import mujoco

    model = mujoco.MjModel.from_xml_string('<mujoco><worldbody/></mujoco>')
    mujoco.mj_step(model, mujoco.MjData(model))
    del metaworld
    return Finding('simulator', True, f'mujoco {mujoco.__version__}, gym {gymnasium.__version__}')


def check_rendering() -> Finding:
    """Drawing without a display works; tried in another process, since drivers may crash."""
    code = (
        'import mujoco; m = mujoco.MjModel.from_xml_string("<mujoco><worldbody/></mujoco>"); '
        'r = mujoco.Renderer(m, 8, 8); r.update_scene(mujoco.MjData(m)); r.render()'
    )
    chosen = os.environ.get('MUJOCO_GL', 'egl')
    for backend in dict.fromkeys((chosen, 'egl', 'osmesa', 'glfw')):
        environment = {**os.environ, 'MUJOCO_GL': backend, 'PYOPENGL_PLATFORM': backend}
        done = subprocess.run(
            [sys.executable, '-c', code], env=environment, capture_output=True, check=False
        )
        if done.returncode == 0:
            return Finding('rendering', True, f'{backend} (MUJOCO_GL={backend})', required=False)
    todo = 'no pictures or videos: sudo apt-get install -y libegl1 libosmesa6, or set MUJOCO_GL'
    return Finding('rendering', False, todo, required=False)


def check_ports() -> Finding:
    """The discovery ports of the ROS domain can be opened."""
    domain = int(os.environ.get('ROS_DOMAIN_ID', '0'))
    first = RTPS_PORT + PORTS_PER_DOMAIN * domain
    free = 0
    for port in range(first + 10, first + 60):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind(('', port))
                free += 1
            except OSError:
                continue
    todo = f'{free} of 50 UDP ports free from {first + 10}: set another ROS_DOMAIN_ID'
    return Finding(
        'ports', free >= 20, todo if free < 20 else f'{free} of 50 free from {first + 10}'
    )


def check_real_time() -> Finding:
    """Nodes around an arm may go before everything else on a busy machine."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except OSError:
        todo = (
            "no real-time priority for nodes around an arm: add '@realtime - rtprio 98' to "
            '/etc/security/limits.d/realtime.conf, create that group, join it, log in again'
        )
        return Finding('real time', False, todo, required=False)
    os.sched_setscheduler(0, *before)
    return Finding('real time', True, 'allowed', required=False)


def check_memory() -> Finding:
    """Enough memory is free for the published experiments, and /dev/shm for DDS."""
    gigabytes = os.sysconf('SC_AVPHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 1e9
    with open('/proc/meminfo') as file:
        for line in file:
            if line.startswith('MemAvailable'):
                gigabytes = int(line.split()[1]) / 1e6
    text = f'{gigabytes:.1f} GB available'
    ok = gigabytes >= NEEDED_MEMORY
    return Finding('memory', ok, text if ok else f'{text}: {NEEDED_MEMORY:g} GB are needed', ok)


CHECKS: tuple[Callable[[], Finding], ...] = (
    check_python,
    check_compilers,
    check_ros,
    check_middleware,
    check_interfaces,
    check_simulator,
    check_rendering,
    check_ports,
    check_memory,
    check_real_time,
)
