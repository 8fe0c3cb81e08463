"""Write config/lifelong.yaml: every parameter of the graph with its default and its meaning."""

from dataclasses import fields
from pathlib import Path

import yaml

from lpgftw_ros.nodes.parameters import NODES

PATH = Path(__file__).resolve().parent.parent / 'config' / 'lifelong.yaml'
HEAD = """\
# Every parameter of the graph with its default; written by `make format`.
# Copy it, keep what you change, and pass it as
#   ros2 launch lpgftw_ros lifelong.launch.py params_file:=my.yaml
#   lpgftw up --params-file my.yaml
# Arguments given at launch win over the file. Numbers of type double need a point: 1.0, not 1.
"""


def content():
    """Return the text of the file."""
    lines = [HEAD.rstrip()]
    for node in ('sim_bridge', 'policy', 'learner'):
        lines += [f'/**/{node}:', '  ros__parameters:']
        for item in fields(NODES[node]):
            value = yaml.safe_dump({item.name: item.default}).strip()
            lines.append(f'    {value:30}  # {item.metadata["help"]}')
    return '\n'.join(lines) + '\n'


if __name__ == '__main__':
    PATH.write_text(content())
