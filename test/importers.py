"""Print how many modules the package has, and those that only one other module imports.

`python test/importers.py`. A module with one importer must hold an idea of its own; `REASONS` says
which. A test keeps the number of modules and this list.
"""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST = 171
"""Modules the package may have."""
REASONS = {
    'bench': 'fair timing: contestants take turns',
    'bench.ros': 'a bench of its own; the bench of the page samples as it does',
    'commands.watch': 'a command; train shows the same page',
    'dashboard.charts': 'figures as SVG text, without the page',
    'dashboard.scene': 'a MuJoCo model in the browser',
    'deploy.rehearsal': 'the whole arm in one process, for users, the bench and tests',
    'domains.bodies.env': 'loaded by name: a kind of task is `settings` and `env`',
    'domains.gym.settings': 'loaded by name: a kind of task is `settings` and `env`',
    'domains.metaworld.rows': 'loaded by workers, without the rest of its domain',
    'domains.workers.main': 'a process of its own',
    'experiments.plots': 'figures; a report combines them with tables',
    'graph.deployment': 'the graph around an arm; launch/deploy.launch.py reads it',
    'graph.urdf': 'MuJoCo models as URDF, without ROS',
    'learning': 'the public names of the library',
    'learning.adaptive.budget': 'when a task ends, and how often the first is drawn',
    'learning.adaptive.columns': 'which residuals become columns, and merging them',
    'learning.adaptive.guard': 'whether an update harms an old task',
    'learning.adaptive.learner': 'a method; the registry names it',
    'learning.adaptive.recognise': 'which known task an unnamed one is',
    'learning.adaptive.start': 'where a new task starts',
    'learning.methods.ewc': 'a method; the registry names it',
    'learning.methods.pg_ella': 'a method; the registry names it',
    'learning.methods.replay': 'a method; the registry names it',
    'learning.methods.stl': 'a method; the registry names it',
    'nodes.arm_link': 'an arm behind ROS topics, as its environment sees it',
    'nodes.arm_operator': 'an operator: activates an arm and measures it, for the bench and tests',
    'nodes.learner_actions': 'the actions of the learner',
    'nodes.learner_services': 'the services of the learner',
    'nodes.policy': 'a node and a process; composed hosts it too',
    'nodes.sim_bridge': 'a node and a process; composed hosts it too',
}
"""Modules that may have a single importer, and the idea each holds."""


def modules() -> dict[str, Path]:
    """Return every module of the package by name."""
    found = {}
    for path in sorted((ROOT / 'lpgftw_ros').rglob('*.py')):
        parts = path.relative_to(ROOT).with_suffix('').parts
        found['.'.join(parts[:-1] if parts[-1] == '__init__' else parts)] = path
    return found


def importers() -> dict[str, set[str]]:
    """Return which modules import each module."""
    known = modules()
    found: dict[str, set[str]] = defaultdict(set)
    for name, path in known.items():
        for node in ast.walk(ast.parse(path.read_text('utf-8'))):
            if isinstance(node, ast.Import):
                named = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                named = [f'{node.module}.{alias.name}' for alias in node.names]
                named = [n if n in known else str(node.module) for n in named]
            else:
                continue
            for target in set(named) & set(known) - {name}:
                found[target].add(name)
    return {name: found[name] for name in known}


def lonely() -> dict[str, str]:
    """Return the modules with exactly one importer, and that importer."""
    found = {name: next(iter(by)) for name, by in importers().items() if len(by) == 1}
    return {name.removeprefix('lpgftw_ros.'): by for name, by in found.items()}


if __name__ == '__main__':
    print(f'{len(modules())} modules, {len(lonely())} with one importer')
    for name in lonely():
        print(f'{name:30} {REASONS.get(name, "no reason given")}')
