"""What set-up needs from the system, and how to get it on Debian and Ubuntu.

Runs with any Python 3 and its standard library only, before there is an environment.
"""

import ctypes.util
import os
from pathlib import Path
import shutil
import subprocess
import sys
import sysconfig

OLDEST, NEWEST = (3, 11), (3, 13)


class MissingPrerequisite(Exception):
    """Something set-up needs is not there and may not be installed by it."""


def check_python():
    """Stop unless this Python is one the pinned packages exist for."""
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        found = '.'.join(map(str, sys.version_info[:3]))
        raise MissingPrerequisite(
            f'Python 3.11 to 3.13 is needed, this is {found}: '
            'run make PYTHON=python3.12 (or another one that is installed)'
        )


def missing_packages():
    """Return the Debian packages that are needed and missing."""
    packages = []
    if shutil.which('g++') is None and shutil.which('c++') is None:
        packages.append('g++')
    if shutil.which('make') is None:
        packages.append('make')
    if not _has_venv():
        packages.append('python3-venv')
    if not (Path(sysconfig.get_paths()['include']) / 'Python.h').is_file():
        packages.append('python3-dev')
    return packages


def _has_venv():
    try:
        import ensurepip
        import venv
    except ImportError:
        return False
    return ensurepip.version() is not None and venv is not None


def missing_optional_packages():
    """Return the packages for rendering without a display, if no back end is there."""
    if ctypes.util.find_library('EGL') or ctypes.util.find_library('OSMesa'):
        return []
    return ['libegl1', 'libosmesa6']


def apt_command():
    """Return the words that may install packages here, or None."""
    if shutil.which('apt-get') is None:
        return None
    if os.geteuid() == 0:
        return ['apt-get']
    if shutil.which('sudo'):
        allowed = subprocess.run(['sudo', '-n', 'true'], capture_output=True, check=False)
        if allowed.returncode == 0:
            return ['sudo', '-n', 'apt-get']
    return None


def provide(say, may_install=True):
    """Install what is missing where that is allowed; otherwise say the one command and stop."""
    check_python()
    needed, optional = missing_packages(), missing_optional_packages()
    apt = apt_command() if may_install and (needed or optional) else None
    if needed and apt is None:
        raise MissingPrerequisite(
            'missing: {0}. Run: sudo apt-get install -y {0} (or what your system calls them), '
            'then make again'.format(' '.join(needed))
        )
    if needed:
        say('installing ' + ' '.join(needed) + ' with apt-get')
        _apt_install(apt, needed)
        if still := missing_packages():
            raise MissingPrerequisite('apt-get ran, but this is still missing: ' + ' '.join(still))
    if optional and apt is not None:
        say('installing ' + ' '.join(optional) + ' with apt-get, for rendering without a display')
        try:
            _apt_install(apt, optional)
        except MissingPrerequisite as error:
            say(f'going on without rendering: {error}')
    elif optional:
        say('no EGL or OSMesa: pictures and videos will not work (lpgftw doctor says more)')


def _apt_install(apt, packages):
    environment = {**os.environ, 'DEBIAN_FRONTEND': 'noninteractive'}
    install = [*apt, 'install', '-y', '--no-install-recommends', *packages]
    options = {'env': environment, 'capture_output': True, 'text': True, 'check': False}
    done = subprocess.run(install, **options)
    if done.returncode != 0:  # the lists of a fresh container are empty
        subprocess.run([*apt, 'update'], **options)
        done = subprocess.run(install, **options)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise MissingPrerequisite(
            '{} failed: {}'.format(' '.join(install), lines[-1] if lines else 'no reason given')
        )
