"""Write what is made from the declarations of options: parameter file and tables of the docs."""

from dataclasses import fields
from pathlib import Path
import re

import yaml

from lpgftw_ros.graph.bringup import GraphOptions, PolicyOptions
from lpgftw_ros.graph.deployment import DeployOptions
from lpgftw_ros.graph.parameters import (
    ArmBridgeParameters,
    GuardParameters,
    NodeParameters,
    NODES,
    SawyerSimParameters,
)
from lpgftw_ros.learning.registry import LEARNERS
from lpgftw_ros.runs.config import setting_fields
from lpgftw_ros.runs.settings import (
    ClusterOption,
    described,
    help_text,
    KEY_VALUES,
    LoopConfig,
    TrainOptions,
)
from lpgftw_ros.runs.stages import EVALUATIONS

ROOT = Path(__file__).resolve().parent.parent
PARAMETERS = """\
# Every parameter of the graph with its default; written by `make format`.
# Copy it, keep what you change, and pass it as
#   ros2 launch lpgftw_ros lifelong.launch.py params_file:=my.yaml
#   lpgftw up --params-file my.yaml
# Arguments given at launch win over the file. Numbers of type double need a point: 1.0, not 1.
"""
SETTINGS_ROW = (
    '| `settings.*` | as the preset says | every [setting](settings.md) of the run and of its '
    'learner, such as `settings.max_kl` | when unconfigured |'
)
SETTINGS = """\
# Options and settings

This page is written by `make format` from the declarations in the code; do not edit it.
`lpgftw explain --settings LEARNER` prints the settings of one method.
"""


def parameter_file():
    """Return the text of config/lifelong.yaml."""
    lines = [PARAMETERS.rstrip()]
    for node in NODES:
        lines += [f'/**/{node}:', '  ros__parameters:']
        for item in fields(NODES[node]):
            if item.metadata.get('reads') == KEY_VALUES:
                lines += _settings_lines()
                continue
            value = _yaml(item)
            lines.append(f'    {value:30}  # {help_text(item)}')
    return '\n'.join(lines) + '\n'


def _ros_value(item):
    """Return a default as ROS has it: lists are arrays."""
    items = item.metadata.get('items')
    return items.read(item.default) if items else item.default


def _yaml(item):
    value = _ros_value(item)
    if isinstance(value, list):
        return f'{item.name}: {yaml.safe_dump(value, default_flow_style=True).strip()}'
    return yaml.safe_dump({item.name: value}).strip()


def _settings_lines():
    """Return the settings of the default learner, as comments: by default the preset decides."""
    own = {item.name for item in fields(NODES['learner'])}
    lines = ['    # settings:                    # by default as the preset says; of lpg-ftw:']
    for name, item in setting_fields('lpg-ftw').items():
        if name not in own:
            value = _yaml(item)
            lines.append(f'    #   {value:26}  # {help_text(item)}')
    return lines


def settings_page():
    """Return the text of docs/settings.md."""
    parts = [SETTINGS]
    parts += _section(
        'Options of a run',
        'On the command line of `lpgftw train` and `lpgftw up` as `--name` (`settings` as '
        '`--set KEY=VALUE`), in the graph as launch arguments `name:=value` and as parameters; '
        'there lists are arrays and each setting is a parameter `settings.KEY`.',
        TrainOptions,
    )
    parts += _section(
        'Options of a cluster',
        'On the command line of `lpgftw train`, `experiment` and `reproduce`; see '
        '[scale.md](scale.md).',
        ClusterOption,
    )
    parts += _section(
        'Settings of every run',
        'Set with `--set KEY=VALUE`, as parameter `settings.KEY` or in a preset.',
        LoopConfig,
    )
    for name, (config, _) in LEARNERS.items():
        parts += _section(f'Settings of `{name}`', 'Set with `--set KEY=VALUE`.', config)
    parts += ['## Evaluations', 'Names in `summary.json`.', '| name | when |\n|---|---|']
    parts[-1] += ''.join(f'\n| `{one.name}` | {one.help} |' for one in EVALUATIONS) + '\n'
    run = {item.name for item in fields(TrainOptions)}
    for file, kind in (
        ('lifelong', GraphOptions),
        ('policy', PolicyOptions),
        ('deploy', DeployOptions),
    ):
        text = 'Beside the options of a run.' if kind is not PolicyOptions else ''
        skip = run if kind is not PolicyOptions else set()
        parts += _section(f'Arguments of `{file}.launch.py`', text, kind, skip)
    arm = {
        'arm_bridge': ArmBridgeParameters,
        'safety_guard': GuardParameters,
        'sawyer_sim': SawyerSimParameters,
    }
    for node, kind in {**NODES, **arm}.items():
        parts += _section(f'Parameters of `{node}`', '', kind)
    return '\n'.join(parts)


def _section(title, text, kind, skip=frozenset()):
    lines = ['| name | type | default | range | meaning |', '|---|---|---|---|---|']
    rows = described(kind)
    if issubclass(kind, NodeParameters):
        meaning = 'every setting of the run and of its learner'
        rows = [('settings.*', '', '', '', meaning) if r[0] == 'settings' else r for r in rows]
    for name, type_name, default, span, meaning in rows:
        if name not in skip:
            shown = f'`{default}`' if default else ''
            lines.append(f'| `{name}` | {type_name} | {shown} | {span} | {meaning} |')
    return [f'## {title}\n', *([f'{text}\n'] if text else []), '\n'.join(lines) + '\n']


def ros_page():
    """Return docs/ros.md with the default and meaning of every parameter as declared.

    The last column, when a parameter may change, is kept.
    """
    text = (ROOT / 'docs' / 'ros.md').read_text()
    for node, kind in NODES.items():
        head, found, rest = text.partition(f'### `{node}`\n')
        if not found:
            continue
        before, *rows = re.split(r'(?<=\n)(?=\| `)', rest.split('\n\n### ', 1)[0])
        last, _, after = rows[-1].partition('\n')
        after = rest[len(before) + len(''.join(rows[:-1])) + len(last) :]
        changes = {_cell(row, 1): _cell(row, -2) for row in (*rows[:-1], last)}
        lines = [
            f'| `{item.name}` | `{_shown(_ros_value(item))}` | {_meaning(item)} | '
            f'{changes.get(f"`{item.name}`", "when unconfigured")} |'
            if item.metadata.get('reads') != KEY_VALUES
            else SETTINGS_ROW
            for item in fields(kind)
        ]
        text = head + found + before + '\n'.join(lines) + after
    return text


def readme():
    """Return README.md with the launch arguments that are no options of a run."""
    text = (ROOT / 'README.md').read_text()
    head, start, rest = text.partition('<!-- launch arguments: written by make format -->\n')
    _, end, tail = rest.partition('<!-- end -->\n')
    if not end:
        raise SystemExit('README.md has lost the marks around the launch arguments')
    run = {item.name for item in fields(TrainOptions)}
    lines = ['', '| argument | default | meaning |', '|---|---|---|']
    for name, _, default, _, meaning in described(GraphOptions):
        if name not in run:
            lines.append(f'| `{name}` | {f"`{default}`" if default else ""} | {meaning} |')
    return head + start + '\n'.join(lines) + '\n\n' + end + tail


def _cell(row, index):
    return row.strip().split('|')[index].strip()


def _shown(value):
    if isinstance(value, str):
        return value or "''"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _meaning(item):
    low, high = item.metadata.get('min'), item.metadata.get('max')
    span = '' if low is None or high is None else f' ({_number(low)} to {_number(high)})'
    return help_text(item) + span


def _number(value):
    return str(int(value)) if float(value).is_integer() else str(value)


FILES = {
    'config/lifelong.yaml': parameter_file,
    'docs/settings.md': settings_page,
    'docs/ros.md': ros_page,
    'README.md': readme,
}

if __name__ == '__main__':
    for name, content in FILES.items():
        (ROOT / name).write_text(content())
