import ast
from dataclasses import fields
import json
from pathlib import Path
import re
import struct

import pytest
import yaml

from lpgftw_ros.graph.parameters import NODES

ROOT = Path(__file__).resolve().parents[2]
PERSPECTIVE = json.loads((ROOT / 'config' / 'lifelong.perspective').read_text())
DOC = (ROOT / 'docs' / 'ros.md').read_text()
STATUS = (ROOT / 'lpgftw_interfaces' / 'msg' / 'LearningStatus.msg').read_text()
NODE_FILES = [
    path
    for path in sorted((ROOT / 'lpgftw_ros' / 'nodes').glob('*.py'))
    if not path.stem.startswith(('arm_', 'safety_', 'sawyer_'))
]
ENTITY = re.compile(
    r'(?:create_publisher|create_subscription|create_service|create|Mailbox|ActionServer)\(\s*'
    r"(?:self,\s*|node,\s*)?\w+,\s*'([^']+)'"
)


QBYTES = re.compile(r"QtCore\.QByteArray\((b'[0-9a-f]+')\)")


def values(tree):
    for value in tree['keys'].values():
        if value['type'] == 'repr(QByteArray.hex)':
            yield QBYTES.fullmatch(value['repr(QByteArray.hex)'])[1]
        else:
            assert value['type'] == 'repr'
            yield value['repr']
    for group in tree['groups'].values():
        yield from values(group)


def test_every_value_of_the_perspective_is_a_literal():
    found = [ast.literal_eval(text) for text in values(PERSPECTIVE)]
    assert len(found) > 10


def window(name):
    """Return a saved property of rqt's window as bytes."""
    value = PERSPECTIVE['groups']['mainwindow']['keys'][name]['repr(QByteArray.hex)']
    return bytes.fromhex(ast.literal_eval(QBYTES.fullmatch(value)[1]).decode())


def test_the_window_of_the_perspective_fits_a_small_screen():
    magic, _, left, top, right, bottom = struct.unpack_from('>IIiiii', window('geometry'))
    assert magic == 0x01D9D0CB
    assert right - left < 1280
    assert bottom - top < 800


def test_the_perspective_says_where_every_plugin_is():
    """Without a saved state rqt puts all docks in one row, several screens wide."""
    names = [
        name.removeprefix('plugin__') for name in PERSPECTIVE['groups']['pluginmanager']['groups']
    ]
    missing = [name for name in names if name.encode('utf-16-be') not in window('state')]
    assert missing == []


def test_the_perspective_plots_fields_that_status_has():
    topics = re.findall(r"/lifelong/status/(\w+)'", json.dumps(PERSPECTIVE))
    assert {'return_mean', 'success', 'kl', 'steps_per_second'} <= set(topics)
    assert all(re.search(rf'^float64 {name}\b', STATUS, re.M) for name in topics)


def test_status_has_no_header():
    assert not re.search(r'\bheader\b\s*(#.*)?$', STATUS.split('\n', 2)[2], re.M)


def test_every_plugin_of_the_perspective_is_running():
    manager = PERSPECTIVE['groups']['pluginmanager']
    running = ast.literal_eval(manager['keys']['running-plugins']['repr'])
    names = {f'plugin__{n.replace("/", "__")}__{i}' for n, ids in running.items() for i in ids}
    assert set(manager['groups']) == names


def test_the_analyzers_cover_every_node():
    text = (ROOT / 'config' / 'diagnostic_analyzers.yaml').read_text()
    assert yaml.safe_load(text)['analyzers']['ros__parameters']['path']
    for node in NODES:
        assert f"'/lifelong/{node}:'" in text


@pytest.mark.parametrize('path', NODE_FILES, ids=lambda path: path.stem)
def test_every_topic_service_and_action_is_documented(path):
    for name in ENTITY.findall(path.read_text()):
        assert f'`{name.removeprefix("~/")}`' in DOC or f'`{name}`' in DOC, name


@pytest.mark.parametrize('node', NODES)
def test_every_parameter_is_documented(node):
    section = DOC.split(f'### `{node}`', 1)[1].split('\n### ', 1)[0]
    for item in fields(NODES[node]):
        name = 'settings.*' if item.name == 'settings' else item.name  # one parameter each
        assert f'`{name}`' in section, name


def test_every_interface_of_the_graph_is_documented():
    arm = {'ArmCommand', 'SafetyState', 'PolicySpec', 'TaskFactors', 'TaskState'}
    for path in (ROOT / 'lpgftw_interfaces').glob('*/*.*'):
        if path.suffix in ('.msg', '.srv', '.action') and path.stem not in arm:
            assert f'`{path.stem}`' in DOC, path.stem
