"""`lpgftw knowledge`: save, show and compare what runs have learned."""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from lpgftw_ros import arguments
from lpgftw_ros.errors import StateMismatch
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.learning.policies import Knowledge
from lpgftw_ros.learning.serialise import compact
from lpgftw_ros.runs.checkpoints import knowledge_of, read_shared, write_knowledge
from lpgftw_ros.runs.stages import FINAL, FINAL_STOCHASTIC, TUNE, TUNE_STOCHASTIC


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    actions = parser.add_subparsers(dest='action', required=True, metavar='ACTION')
    save = actions.add_parser('save', help='write the knowledge of a run to one file')
    save.add_argument('source', metavar='RUN', type=arguments.folder)
    save.add_argument('file', metavar='FILE', type=arguments.new_file)
    save.add_argument(
        '--compact', action='store_true', help='curvatures by their eigenvectors: a tenth the size'
    )
    save.add_argument(
        '--card', action='store_true', help='also write what it is, how it was trained, its scores'
    )
    show = actions.add_parser('show', help='print columns, tasks and origin')
    show.add_argument('source', metavar='RUN_OR_FILE', type=arguments.run_or_file)
    diff = actions.add_parser('diff', help='print how far two differ, task by task')
    diff.add_argument('source', metavar='RUN_OR_FILE', type=arguments.run_or_file)
    diff.add_argument('other', metavar='OTHER', type=arguments.run_or_file)
    for one in (show, diff):
        one.add_argument('--json', action='store_true', help='print JSON')


def run(args: argparse.Namespace) -> int:
    """Carry out the action."""
    shared, info = read_shared(args.source)
    if args.action == 'save':
        if not bytes(shared['base/finished']).strip():
            raise StateMismatch(f'{args.source} has no knowledge yet: no task is finished')
        kept = compact(shared) if args.compact else shared
        write_knowledge(args.file, kept, info.get('decided_by', {}), info.get('probe_root'))
        size = args.file.stat().st_size
        tasks = knowledge_of(shared).tasks
        print(f'{args.file}: {len(tasks)} tasks, {size} bytes; lpgftw train --knowledge takes it')
        if args.card:
            path = args.file.with_suffix('.md')
            path.write_text(card(args.source, args.file, describe(shared, info)), encoding='utf-8')
            print(f'{path}: its card')
        return 0
    if args.action == 'show':
        report = describe(shared, info)
        print(json.dumps(report, indent=2) if args.json else _shown(args.source, report))
        return 0
    report = compare(knowledge_of(shared), knowledge_of(read_shared(args.other)[0]))
    print(json.dumps(report, indent=2) if args.json else _differences(report))
    return 0


def describe(shared: dict[str, Array], info: dict[str, Any]) -> dict[str, Any]:
    """Return what a knowledge base holds, as plain values."""
    knowledge, origin = knowledge_of(shared), info.get('decided_by', {})
    spec, config = knowledge.spec, origin.get('config', {})
    return {
        'learner': shared['base/learner'].tobytes().decode(),
        'suite': config.get('suite'),
        'seed': config.get('loop.seed'),
        'run': origin.get('id'),
        'policy': [spec.obs_dim, spec.act_dim, *spec.hidden],
        'columns': knowledge.basis.shape[1],
        'tasks': {
            task: [round(float(s), 6) for s in factors.coefficients]
            for task, factors in knowledge.tasks.items()
        },
    }


def card(run: Path, file: Path, report: dict[str, Any]) -> str:
    """Return what a knowledge file is, how it was trained, how good it is and how to use it."""
    from lpgftw_ros.domains.suites import endless_tasks
    from lpgftw_ros.experiments.report import rerun_command
    from lpgftw_ros.experiments.run_data import read_run
    from lpgftw_ros.runs.folder import read_config

    data = read_run(run)
    summary = json.loads((run / 'summary.json').read_text(encoding='utf-8'))
    fingerprint = json.loads((run / 'fingerprint.json').read_text(encoding='utf-8'))
    versions = ', '.join(f'{name} {version}' for name, version in summary['versions'].items())
    obs_dim, act_dim, *hidden = report['policy']
    network = f'tanh layers of {" and ".join(map(str, hidden))}' if hidden else 'a linear map'
    tasks, endless = set(report['tasks']), endless_tasks(read_config(run).suite_source)
    lines = [
        f'# {file.name}',
        '',
        f'What `{report["learner"]}` learned from {len(tasks)} tasks of `{report["suite"]}`: '
        f'the shared basis L ({report["columns"]} columns), and for each task s, its head and '
        'exploration, its value function and its local quadratic model. Policies take '
        f'{obs_dim} observations to {act_dim} actions by {network}.',
        '',
        '## Use',
        '',
        '```bash',
        f'lpgftw knowledge show {file}',
        f'lpgftw train --suite {report["suite"]} --learner {report["learner"]} --tasks 1 '
        f'--knowledge {file} --out runs/goes-on',
        '```',
        '',
        '## Training',
        '',
        f'    {rerun_command(data)}',
        '',
        f'{summary["steps"]} environment steps. Arithmetic {fingerprint.get("arithmetic")}; '
        f'{versions}.',
        '',
        '## Scores',
        '',
        'Mean return when a task was learned (tune) and after the last task (final); success rate '
        'of episodes with exploration noise.',
        '',
        '| task | return, tune | return, final | success, tune | success, final |',
        '|---|---|---|---|---|',
    ]
    entries = [(entry['task'], entry) for entry in summary['tasks']]
    lines += [_score_line(task, entry, task in endless) for task, entry in entries]
    lines.append(_score_line('mean', summary['mean'], tasks <= endless))
    return '\n'.join([*lines, '', '## Licence', '', 'Apache-2.0, as the rest of the project.', ''])


def compare(one: Knowledge, other: Knowledge) -> dict[str, Any]:
    """Return the tasks only one side has, and the relative change of L and of every policy."""
    if one.spec != other.spec:
        raise StateMismatch('the policies of the two have different shapes')
    k = min(one.basis.shape[1], other.basis.shape[1])
    common = [task for task in one.tasks if task in other.tasks]
    return {
        'columns': [one.basis.shape[1], other.basis.shape[1]],
        'basis_change': _change(one.basis[:, :k], other.basis[:, :k]),
        'only_first': [task for task in one.tasks if task not in other.tasks],
        'only_second': [task for task in other.tasks if task not in one.tasks],
        'policy_change': {
            task: _change(one.policy(task).theta, other.policy(task).theta) for task in common
        },
    }


def _score_line(name: str, scores: dict[str, Any], endless: bool) -> str:
    def number(stage: str, key: str, form: str) -> str:
        known = scores.get(stage) is not None and not (key == 'success' and endless)
        return format(scores[stage][key], form) if known else '-'

    returns = (number(stage, 'return', '.1f') for stage in (TUNE, FINAL))
    stages = (TUNE_STOCHASTIC, FINAL_STOCHASTIC)
    solved = (number(stage, 'success', '.0%') for stage in stages)
    return f'| {name} | {" | ".join((*returns, *solved))} |'


def _change(old: Array, new: Array) -> float:
    size = float(np.linalg.norm(old))
    distance = float(np.linalg.norm(new - old))
    return distance / size if size > 0.0 else distance


def _shown(source: Path, report: dict[str, Any]) -> str:
    table = Table(title=f'{source}: {report["learner"]}', title_justify='left')
    table.add_column('task')
    table.add_column('s', justify='right')
    for task, s in report['tasks'].items():
        table.add_row(task, ' '.join(f'{value:.3g}' for value in s))
    console = Console()
    with console.capture() as captured:
        console.print(table)
    origin = f'suite {report["suite"]}, seed {report["seed"]}, run {report["run"]}'
    shape = f'{report["columns"]} columns, policy {report["policy"]}'
    return f'{captured.get()}{shape}; {origin}'


def _differences(report: dict[str, Any]) -> str:
    lines = [
        f'columns: {report["columns"][0]} and {report["columns"][1]}; '
        f'shared columns of L changed by {report["basis_change"]:.2%}'
    ]
    for key, words in (('only_first', 'only in the first'), ('only_second', 'only in the second')):
        if report[key]:
            lines.append(f'{words}: {", ".join(report[key])}')
    lines += [f'{task}: policy changed by {d:.2%}' for task, d in report['policy_change'].items()]
    return '\n'.join(lines)
