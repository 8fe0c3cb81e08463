"""`lpgftw explain`: what a task re-used from the shared basis."""

import argparse
from dataclasses import asdict
import json
from pathlib import Path
from typing import Any

import numpy as np

from lpgftw_ros import arguments
from lpgftw_ros.experiments.explain import column_use, contributions, explain, Explanation
from lpgftw_ros.learning.policies import Knowledge
from lpgftw_ros.runs.knowledge_files import load_knowledge, load_local_models


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument('folder', type=arguments.folder, metavar='RUN', help='run folder')
    parser.add_argument('--task', help='one task in detail (default: all, briefly)')
    parser.add_argument('--json', action='store_true', help='print JSON')


def explain_run(folder: Path, task: str | None) -> tuple[Knowledge, list[Explanation]]:
    """Return the knowledge of a run and the explanation of one task or of all."""
    knowledge, models = load_knowledge(folder), load_local_models(folder)
    names = [task] if task is not None else list(knowledge.tasks)
    return knowledge, [explain(knowledge, name, models) for name in names]


def run(args: argparse.Namespace) -> int:
    """Print what tasks are made of."""
    knowledge, found = explain_run(args.folder, args.task)
    if args.json:
        print(json.dumps([_plain(asdict(one)) for one in found], indent=2))
        return 0
    if knowledge.basis.shape[1] == 0:
        print('this run has no shared basis: its tasks were learned alone')
    elif args.task is None:
        use = ' '.join(f'{share:.0%}' for share in column_use(contributions(knowledge)))
        print(f'{len(found)} tasks, {knowledge.basis.shape[1]} columns, used {use}')
    for one in found:
        print('\n'.join(_lines(one, detailed=args.task is not None)))
    return 0


def _lines(one: Explanation, *, detailed: bool) -> list[str]:
    near = one.nearest if detailed else one.nearest[:1]
    s = ', '.join(f'{value:.3g}' for value in one.coefficients)
    lines = [f'{one.task}: s = [{s}]']
    if len(one.shares):
        lines.append('  share of columns: ' + ' '.join(f'{share:.0%}' for share in one.shares))
    if one.residual_share > 0.0:
        lines.append(f'  own residual: {one.residual_share:.0%} of its parameters')
    if near:
        lines.append('  nearest: ' + ', '.join(f'{name} ({value:.2f})' for name, value in near))
    if detailed and one.moved is not None:
        lines.append(f'  moved since it was tuned: {one.moved:.2%} of its parameters')
    if one.saturation is not None and (detailed or one.saturation.saturated):
        lines.append(_saturation(one))
    return lines


def _saturation(one: Explanation) -> str:
    assert one.saturation is not None
    found = one.saturation
    numbers = (
        f'{found.outside_share:.0%} of its predicted gain lies outside the span of L, '
        f'{found.per_dimension:.2g} times the gain per dimension inside '
        f'(noise reaches {found.threshold:.2g})'
    )
    if found.saturated:
        return f'  warning: the basis is too small for this task: {numbers}; try more max_columns'
    return f'  saturation: none found, {numbers}'


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
