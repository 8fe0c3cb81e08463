"""Package description; what it says of itself comes from package.xml."""

import os
from pathlib import Path
import sys
import xml.etree.ElementTree as ElementTree

from setuptools import find_packages, setup

NAME = 'lpgftw_ros'
ROOT = Path(__file__).resolve().parent
PACKAGE = ElementTree.parse(ROOT / 'package.xml').getroot()
HOOK = ROOT / '.venv' / 'hook' / 'environment.sh'
"""Written by `make workspace`: shows the environment's packages to the system's Python."""
NODES = sorted(
    path.stem
    for path in (ROOT / NAME / 'nodes').glob('*.py')
    if 'def main(' in path.read_text(encoding='utf-8')
)

EXTRAS = ('metaworld', 'torch', 'dashboard', 'deploy', 'cluster', 'ros', 'dev')


def pinned(name: str) -> list[str]:
    """Return the lines of a requirements file."""
    lines = (ROOT / name).read_text(encoding='utf-8').splitlines()
    return [line for line in lines if line and not line.startswith('#')]


def node_scripts() -> list[str]:
    """Return the executables of the nodes: colcon puts them into lib/, pip would onto the PATH."""
    wheels = {'bdist_wheel', 'editable_wheel', 'dist_info', 'sdist'}
    if wheels & set(sys.argv):
        return []
    return [f'{node} = {NAME}.nodes:run_{node}' for node in NODES]


def data_files() -> list[tuple[str, list[str]]]:
    """Return what goes to share/: launch files, parameters, models and suites."""
    files = [
        ('share/ament_index/resource_index/packages', [f'resource/{NAME}']),
        (f'share/{NAME}', ['package.xml']),
    ]
    for top in ('launch', 'config', 'sim'):
        for folder in [ROOT / top, *(p for p in (ROOT / top).rglob('*') if p.is_dir())]:
            inside = sorted(p for p in folder.glob('*') if p.is_file() and p.suffix != '.pyc')
            if inside:
                names = [str(p.relative_to(ROOT)) for p in inside]
                files.append((f'share/{NAME}/{folder.relative_to(ROOT)}', names))
    if HOOK.is_file():
        files.append((f'share/{NAME}/hook', [str(HOOK.relative_to(ROOT))]))
    return files


def require_interfaces() -> None:
    """Stop a colcon build that has not found lpgftw_interfaces, with what to do about it."""
    builds = 'COLCON' in os.environ and {'install', 'develop'} & set(sys.argv)
    prefixes = os.environ.get('AMENT_PREFIX_PATH', '').split(os.pathsep)
    found = any((Path(p) / 'share/lpgftw_interfaces/package.xml').is_file() for p in prefixes if p)
    if builds and not found:
        sys.exit(
            f'{NAME}: colcon does not see lpgftw_interfaces, a package inside this one: '
            'run make workspace in this folder, then colcon build again'
        )


require_interfaces()


setup(
    name=NAME,
    version=PACKAGE.findtext('version'),
    description=PACKAGE.findtext('description'),
    long_description=(ROOT / 'README.md').read_text(encoding='utf-8'),
    long_description_content_type='text/markdown',
    license='Apache-2.0',
    maintainer='lpgftw_ros maintainers',
    maintainer_email='maintainers@lpgftw-ros.invalid',
    packages=find_packages(include=[NAME, f'{NAME}.*']),
    package_data={NAME: ['py.typed', '*.pyi']},
    data_files=data_files(),
    python_requires='>=3.11,<3.14',
    install_requires=pinned('requirements.txt'),
    extras_require={extra: pinned(f'requirements-{extra}.txt') for extra in EXTRAS},
    zip_safe=False,
    entry_points={
        'console_scripts': ['lpgftw = lpgftw_ros.cli:main', *node_scripts()],
    },
)
