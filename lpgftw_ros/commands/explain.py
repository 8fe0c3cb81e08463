"""`lpgftw explain`: what a task reuses of the shared basis."""

import argparse
from dataclasses import asdict
import json
from pathlib import Path
from typing import Any

import numpy as np

from lpgftw_ros import arguments
from lpgftw_ros.errors import InvalidConfig, UnknownName
from lpgftw_ros.experiments.explain import (
    column_use,
    contributions,
    decisions,
    describe_explanation,
    explain,
    Explanation,
)
from lpgftw_ros.learning.policies import Knowledge
from lpgftw_ros.runs.checkpoints import load_knowledge, load_local_models
from lpgftw_ros.runs.folder import read_config, read_rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        'folder', nargs='?', type=arguments.folder, metavar='RUN', help='run folder'
    )
    parser.add_argument(
        '--settings',
        metavar='LEARNER',
        help='print every setting of a method instead',
    )
    parser.add_argument('--task', help='one task in detail (default: all, briefly)')
    parser.add_argument('--json', action='store_true', help='print JSON')


def explain_run(folder: Path, task: str | None) -> tuple[Knowledge, list[Explanation]]:
    """Return the knowledge of a run and the explanation of one task or of all."""
    knowledge, models = load_knowledge(folder), load_local_models(folder)
    names = [task] if task is not None else list(knowledge.tasks)
    return knowledge, [explain(knowledge, name, models) for name in names]


def explain_settings(learner: str) -> int:
    """Print every setting of a run with this method: default, range and meaning."""
    from rich.console import Console
    from rich.table import Table

    from lpgftw_ros.learning.registry import LEARNERS
    from lpgftw_ros.runs.config import learner_names, method_of
    from lpgftw_ros.runs.settings import described, LoopConfig

    if learner not in learner_names():
        raise UnknownName('learner', learner, learner_names())
    for title, kind in (
        ('every run', LoopConfig),
        (learner, LEARNERS[method_of(learner)][0]),
    ):
        table = Table(title=f'settings of {title} (--set NAME=VALUE)', title_justify='left')
        for column in ('name', 'default', 'range', 'meaning'):
            table.add_column(column, no_wrap=column == 'name')
        for name, _, default, span, meaning in described(kind):
            table.add_row(name, default, span, meaning)
        Console().print(table)
    return 0


def run(args: argparse.Namespace) -> int:
    """Print what tasks are made of."""
    if args.settings is not None:
        return explain_settings(args.settings)
    if args.folder is None:
        raise InvalidConfig('give a run folder, or --settings LEARNER')
    knowledge, found = explain_run(args.folder, args.task)
    if args.json:
        print(json.dumps([_plain(asdict(one)) for one in found], indent=2))
        return 0
    if knowledge.basis.shape[1] == 0:
        shares = read_config(args.folder).learner.startswith('lpg-ftw')
        why = 'no task is finished yet' if shares else 'its tasks were learned alone'
        print(f'this run has no shared basis: {why}')
    elif args.task is None:
        use = ' '.join(f'{share:.0%}' for share in column_use(contributions(knowledge)))
        print(f'{len(found)} tasks, {knowledge.basis.shape[1]} columns, used {use}')
    told = _decisions(args.folder)
    for one in found:
        print('\n'.join(describe_explanation(one, detailed=args.task is not None)))
        for sentence in (text for task, text in told if task == one.task):
            print(f'  {sentence}')
    return 0


def _decisions(folder: Path) -> list[tuple[str, str]]:
    """Return the decisions of an adaptive learner; empty for others."""
    if read_config(folder).learner != 'lpg-ftw-adaptive':
        return []
    return decisions(read_rows(folder))


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
