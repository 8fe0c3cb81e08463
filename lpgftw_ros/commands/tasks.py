"""`lpgftw tasks`: list suites, or the tasks of one suite."""

import argparse
import json
from typing import Any

from lpgftw_ros import arguments
from lpgftw_ros.domains.suites import load_suite, Suite, suite_names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument('suite', nargs='?', help='a suite by name, or a suite YAML file')
    parser.add_argument(
        '--seed', type=arguments.seed, help='list the tasks in the order of this seed'
    )
    parser.add_argument('--json', action='store_true', help='print JSON')


def run(args: argparse.Namespace) -> int:
    """Print the list."""
    if args.suite is None:
        suites = [load_suite(name) for name in suite_names()]
        rows = [_suite_row(suite) for suite in suites]
        print(json.dumps(rows, indent=2) if args.json else _table(rows, 'suite'))
        return 0
    suite = load_suite(args.suite)
    rows = [_task_row(suite, name) for name in _names(suite, args.seed)]
    if args.json:
        print(json.dumps({**_suite_row(suite), 'tasks': rows}, indent=2))
    else:
        print(f'{suite.name}: {suite.description}')
        print(_table([{**row, 'settings': _short(row['settings'])} for row in rows], 'task'))
    return 0


def _names(suite: Suite, seed: int | None) -> tuple[str, ...]:
    return suite.task_names if seed is None else suite.order(seed)


def _suite_row(suite: Suite) -> dict[str, Any]:
    return {
        'suite': suite.name,
        'tasks': len(suite.tasks),
        'visits': len(suite.order(0)),
        'horizon': suite.horizon,
        'hidden': list(suite.hidden),
        'description': suite.description,
    }


def _task_row(suite: Suite, name: str) -> dict[str, Any]:
    task = suite.task(name)
    settings = dict(task.settings)
    return {'task': name, 'kind': task.kind, 'horizon': task.horizon, 'settings': settings}


def _short(settings: dict[str, Any]) -> str:
    return ' '.join(f'{key}={value}' for key, value in settings.items())


def _table(rows: list[dict[str, Any]], first: str) -> str:
    """Lay the rows out in columns as wide as their longest entry."""
    keys = [first, *(key for key in rows[0] if key != first)]
    cells = [keys, *([str(row[key]) for key in keys] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(keys))]
    lines = (
        '  '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    )
    return '\n'.join(lines)
