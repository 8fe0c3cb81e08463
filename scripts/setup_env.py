"""Make the environment: virtual environment, packages, interfaces, this project.

With --workspace it makes only what a colcon workspace needs before `colcon build`: the
interfaces linked beside this package, since colcon finds no package inside another, and the
Python packages that come neither with ROS nor by rosdep.

Each step leaves a stamp with the hash of its inputs, so a second run only compares hashes, and
an interrupted run goes on at the step it was in.
"""

import argparse
import fcntl
import json
import os
from pathlib import Path
import re
import shutil
import subprocess
import sys

from prerequisites import MissingPrerequisite, provide
from steps import say, Step

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = ('metaworld', 'torch', 'deploy', 'dashboard', 'cluster', 'dev')
REQUIREMENTS = ('requirements.txt', *(f'requirements-{extra}.txt' for extra in EXTRAS))
RUNTIME = REQUIREMENTS[:5]  # what a robot runs; a workspace gets these
ROS_REQUIREMENTS = 'requirements-ros.txt'
DATA = ('launch', 'config', 'sim')
NEW_ENOUGH = 'jazzy'  # distributions are named in alphabetical order


def data_files():
    """Return the files ROS 2 tools look for in share/; they follow no linked folders."""
    inside = (path for top in DATA for path in (ROOT / top).rglob('*'))
    files = [path for path in inside if path.is_file() and '__pycache__' not in path.parts]
    return [ROOT / 'package.xml', *sorted(files)]


class SetupFailed(Exception):
    """A step failed; its output says why."""


def sourced_ros():
    """Return the name of a sourced ROS 2 (Jazzy or newer) whose rclpy this Python has, or ''."""
    distro = os.environ.get('ROS_DISTRO', '')
    if distro < NEW_ENOUGH:
        return ''
    probe = subprocess.run(
        [sys.executable, '-c', 'import rclpy'], capture_output=True, check=False
    )
    if probe.returncode != 0:
        say(f'ROS 2 {distro} is sourced, but this Python has no rclpy: using the wheels')
        return ''
    return distro


class Setup:
    """The steps, in order."""

    def __init__(self, venv):
        self.venv, self.python = venv, venv / 'bin' / 'python'
        self.stamps = venv / '.setup'
        self.ros = sourced_ros()

    def run(self, may_install, workspace=False):
        """Bring the environment up to date."""
        if workspace and not self.ros:
            raise SetupFailed('source ROS 2 first, for example /opt/ros/jazzy/setup.bash')
        if workspace:
            link_interfaces(ROOT)
        steps = self._workspace_steps() if workspace else self._steps()
        if all(step.done for step, _, _ in steps):
            return
        provide(say, may_install)
        self.stamps.mkdir(parents=True, exist_ok=True)
        with (self.stamps / 'lock').open('w') as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for step, text, action in steps:
                step.run(text, action)

    def _steps(self):
        version = '.'.join(map(str, sys.version_info[:2]))
        files = [*REQUIREMENTS, *([] if self.ros else [ROS_REQUIREMENTS]), 'constraints.txt']
        base = [version, self.ros, str(self.venv)]
        pins = base + [(ROOT / name).read_text() for name in files]
        interfaces = sorted((ROOT / 'lpgftw_interfaces').rglob('*.*'))
        generators = base + [(ROOT / name).read_text() for name in files[len(REQUIREMENTS) : -1]]
        types = generators + [str(p.relative_to(ROOT)) + p.read_text() for p in interfaces]
        project = base + [(ROOT / n).read_text() for n in ('setup.py', 'setup.cfg', 'package.xml')]
        project += sorted(p.name for p in (ROOT / 'lpgftw_ros' / 'nodes').glob('*.py'))
        project += [str(p.relative_to(ROOT)) for p in data_files()]
        source = 'ROS 2 ' + self.ros if self.ros else 'the ROS 2 wheels'
        return [
            (
                Step(self.stamps, 'venv', base),
                'virtual environment, Python ' + version,
                self._venv,
            ),
            (Step(self.stamps, 'packages', pins), 'packages, with ' + source, self._packages),
            (Step(self.stamps, 'interfaces', types), 'building lpgftw_interfaces', self._types),
            (Step(self.stamps, 'project', project), 'installing lpgftw_ros', self._project),
        ]

    def _workspace_steps(self):
        venv, *_ = self._steps()
        pins = [self.ros, str(self.venv), (ROOT / 'constraints.txt').read_text()]
        pins += [(ROOT / name).read_text() for name in RUNTIME]
        packages = Step(self.stamps, 'workspace', pins)
        return [
            venv,
            (packages, 'packages that ROS 2 ' + self.ros + ' does not bring', self._workspace),
        ]

    def _workspace(self, interrupted):
        """Install packages, and write the hook that shows them to ROS."""
        if interrupted:
            self._drop_half_installed()
        self._pip(*(word for name in RUNTIME for word in ('-r', str(ROOT / name))))
        code = 'import sysconfig; print(sysconfig.get_path("purelib"))'
        packages = self._call([str(self.python), '-c', code], capture=True).strip()
        hook = self.venv / 'hook' / 'environment.sh'
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f'export PYTHONPATH="{packages}${{PYTHONPATH:+:$PYTHONPATH}}"\n')
        hooks = {'hooks': ['share/lpgftw_ros/hook/environment.sh']}
        (ROOT / 'colcon.pkg').write_text(json.dumps(hooks) + '\n')

    def _venv(self, interrupted):
        command = [sys.executable, '-m', 'venv', str(self.venv)]
        if self.ros:
            command.insert(3, '--system-site-packages')
        if self._usable() and not interrupted:
            return
        for part in ('bin', 'lib', 'lib64', 'include', 'share', 'pyvenv.cfg', 'build'):
            target = self.venv / part
            if target.is_symlink() or target.is_file():
                target.unlink()
            elif target.is_dir():
                shutil.rmtree(target)
        self._call(command)

    def _usable(self):
        """Return whether there is an environment of this Python and kind already."""
        config = self.venv / 'pyvenv.cfg'
        if not config.is_file():
            return False
        shared = 'include-system-site-packages = true' in config.read_text()
        code = 'import sys, pip; print("%d.%d" % sys.version_info[:2])'
        probe = subprocess.run(
            [str(self.python), '-c', code],
            capture_output=True,
            text=True,
            check=False,
            env=self._environment(),
        )
        version = '{}.{}'.format(*sys.version_info[:2])
        return probe.stdout.strip() == version and shared == bool(self.ros)

    def _packages(self, interrupted):
        if interrupted:
            self._drop_half_installed()
        wanted = []
        for name in (*REQUIREMENTS, *([] if self.ros else [ROS_REQUIREMENTS])):
            wanted += ['-r', str(ROOT / name)]
        if self.ros:  # satisfied at once where the system has it
            wanted += ['colcon-common-extensions', 'setuptools']
        self._pip(*wanted)
        if not self.ros:
            self._repair_exports()

    def _pip(self, *wanted):
        command = [str(self.python), '-m', 'pip', 'install', '--quiet', '--progress-bar', 'off']
        self._call([*command, *wanted, '-c', str(ROOT / 'constraints.txt')])

    def _drop_half_installed(self):
        """Forget packages that pip was killed in the middle of: it writes RECORD last."""
        for info in self.venv.glob('lib/python*/site-packages/*.dist-info'):
            if not (info / 'RECORD').is_file():
                shutil.rmtree(info)

    def _repair_exports(self):
        """Point the wheels' CMake exports to the headers of this machine."""
        code = (
            'import numpy, sysconfig; print(sysconfig.get_paths()["include"]); '
            'print(numpy.get_include())'
        )
        python, numpy = self._call([str(self.python), '-c', code], capture=True).splitlines()
        built = r'/opt/python/cp[^;"/]*/'
        for path in (self.venv / 'share').glob('*/cmake/*.cmake'):
            text = path.read_text()
            new = re.sub(
                built + r'lib/python[^;"/]*/site-packages/numpy/_?core/include',
                lambda _: numpy,
                text,
            )
            new = re.sub(built + r'include/python[0-9.]+', lambda _: python, new)
            if new != text:
                path.write_text(new)

    def _types(self, interrupted):
        build = self.venv / 'build'
        if interrupted and build.exists():
            shutil.rmtree(build)
        self._call(
            [
                str(self.python),
                '-m',
                'colcon',
                '--log-base',
                str(build / 'log'),
                'build',
                '--base-paths',
                str(ROOT / 'lpgftw_interfaces'),
                '--build-base',
                str(build),
                '--merge-install',
                '--install-base',
                str(self.venv),
                '--cmake-args',
                '-DPython3_EXECUTABLE=' + str(self.python),
                '-DBUILD_TESTING=OFF',
            ]
        )

    def _project(self, _interrupted):
        self._call(
            [
                str(self.python),
                '-m',
                'pip',
                'install',
                '--quiet',
                '--no-deps',
                '--no-build-isolation',
                '--config-settings',
                'editable_mode=compat',
                '-e',
                str(ROOT),
            ]
        )
        self._link()
        if self.ros:
            self._show_to_ros()

    def _show_to_ros(self):
        """Put the package where the interpreter of the `ros2` command finds it.

        That is the system's: it sees what PYTHONPATH names, but follows no .pth file in there,
        which is all an editable install leaves.
        """
        for packages in self.venv.glob('lib/python*/site-packages'):
            link = packages / 'lpgftw_ros'
            link.unlink(missing_ok=True)
            link.symlink_to(ROOT / 'lpgftw_ros')

    def _link(self):
        """Put package data and executables where ROS 2 tools look for them."""
        share, lib = self.venv / 'share' / 'lpgftw_ros', self.venv / 'lib' / 'lpgftw_ros'
        index = self.venv / 'share' / 'ament_index' / 'resource_index' / 'packages'
        if share.exists():
            shutil.rmtree(share)
        for folder in (share, lib, index):
            folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / 'resource' / 'lpgftw_ros', index / 'lpgftw_ros')
        links = {share / path.relative_to(ROOT): path for path in data_files()}
        for link, target in links.items():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(target)
        for node in (ROOT / 'lpgftw_ros' / 'nodes').glob('*.py'):
            if 'def main(' in node.read_text():
                self._write_executable(lib / node.stem)

    def _write_executable(self, path):
        """Write what `ros2 run` starts; it is not on the PATH."""
        path.unlink(missing_ok=True)
        run = f'run_{path.name}'
        path.write_text(f'#!{self.python}\nfrom lpgftw_ros.nodes import {run}\n\n{run}()\n')
        path.chmod(0o755)

    def _environment(self):
        environment = dict(os.environ)
        environment.pop('_ROS_WHEELS_BOOTSTRAP_COMPLETE', None)
        environment.pop('PYTHONHOME', None)
        environment['PATH'] = str(self.venv / 'bin') + os.pathsep + environment.get('PATH', '')
        prefixes = [str(self.venv)]
        if self.ros:
            prefixes += environment.get('AMENT_PREFIX_PATH', '').split(os.pathsep)
        else:
            environment.pop('PYTHONPATH', None)
        # colcon would also limit make by the load of the machine, and wait for busy neighbours
        environment.setdefault('MAKEFLAGS', f'-j{os.cpu_count() or 1}')
        for name in ('AMENT_PREFIX_PATH', 'CMAKE_PREFIX_PATH'):
            environment[name] = os.pathsep.join(p for p in prefixes if p)
        return environment

    def _call(self, command, capture=False):
        """Run a command; keep its output unless it fails."""
        done = subprocess.run(
            command,
            env=self._environment(),
            cwd=str(ROOT),
            text=True,
            check=False,
            stdout=subprocess.PIPE,
            stderr=None if capture else subprocess.STDOUT,
        )
        if done.returncode != 0:
            print(done.stdout[-6000:], file=sys.stderr)
            raise SetupFailed(
                'this failed (exit code {}): {}'.format(done.returncode, ' '.join(command[:6]))
            )
        return done.stdout


def link_interfaces(root):
    """Link lpgftw_interfaces beside this package, where colcon and rosdep look for it."""
    link, target = root.parent / 'lpgftw_interfaces', Path(root.name) / 'lpgftw_interfaces'
    if link.is_symlink() and link.resolve() == (root / 'lpgftw_interfaces').resolve():
        return
    if link.exists() or link.is_symlink():
        raise SetupFailed(f'{link} is there already and is not the one of this package')
    link.symlink_to(target)
    say(f'{link} -> {target}')


def main():
    """Run set-up."""
    parser = argparse.ArgumentParser(description='Make the environment of lpgftw_ros.')
    parser.add_argument('--venv', default=str(ROOT / '.venv'), help='folder of the environment')
    parser.add_argument(
        '--no-install',
        action='store_true',
        help='never install system packages, only say which are missing',
    )
    parser.add_argument(
        '--workspace',
        action='store_true',
        help='only what `colcon build` needs: the interfaces beside this package, the packages',
    )
    args = parser.parse_args()
    try:
        setup = Setup(Path(args.venv).absolute())
        setup.run(may_install=not args.no_install, workspace=args.workspace)
    except (MissingPrerequisite, SetupFailed) as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        say('interrupted; the next run goes on from here')
        return 130
    return 0


if __name__ == '__main__':
    sys.exit(main())
