"""Package description; what it says of itself comes from package.xml."""

from pathlib import Path
import xml.etree.ElementTree as ElementTree

from setuptools import find_packages, setup

NAME = 'lpgftw_ros'
ROOT = Path(__file__).resolve().parent
PACKAGE = ElementTree.parse(ROOT / 'package.xml').getroot()
NODES = sorted(
    path.stem
    for path in (ROOT / NAME / 'nodes').glob('*.py')
    if 'def main(' in path.read_text(encoding='utf-8')
)


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
    return files


setup(
    name=NAME,
    version=PACKAGE.findtext('version'),
    description=PACKAGE.findtext('description'),
    license='Apache-2.0',
    maintainer='lpgftw_ros maintainers',
    maintainer_email='maintainers@lpgftw-ros.invalid',
    packages=find_packages(include=[NAME, f'{NAME}.*']),
    package_data={NAME: ['py.typed']},
    data_files=data_files(),
    python_requires='>=3.11,<3.14',
    install_requires=['setuptools'],
    extras_require={'test': ['pytest']},
    zip_safe=False,
    entry_points={
        'console_scripts': [
            'lpgftw = lpgftw_ros.cli:main',
            *(f'{node} = {NAME}.nodes.{node}:main' for node in NODES),
        ],
    },
)
