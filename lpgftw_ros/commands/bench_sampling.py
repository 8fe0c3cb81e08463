"""`lpgftw bench sampling`: how near sampling comes to the speed of the physics."""

import argparse
import importlib
import json
from typing import Any

from lpgftw_ros import arguments
from lpgftw_ros.errors import LpgftwError, UnknownName

BODIES = ('halfcheetah', 'hopper', 'walker2d')
DOMAINS = (*BODIES, 'mt10')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument('--json', action='store_true', help='print JSON')
    parser.add_argument('--only', type=arguments.names, help=f'comma list of {", ".join(DOMAINS)}')
    parser.add_argument('--rounds', type=arguments.count, default=5, help='windows per contestant')
    parser.add_argument('--workers', type=arguments.workers, default=0, help='0: all cores')


def run(args: argparse.Namespace) -> int:
    """Measure and print control steps per second and their ratios."""
    names = DOMAINS if args.only is None else args.only
    for name in names:
        if name not in DOMAINS:
            raise UnknownName('domain', name, DOMAINS)
    results = {name: _measure(name, args.rounds, args.workers) for name in names}
    print(json.dumps(results, indent=2) if args.json else _text(results))
    return 0


def _measure(name: str, rounds: int, workers: int) -> dict[str, Any]:
    """Measure one domain; the peers are imported only here, and must be installed."""
    kind = 'bodies' if name in BODIES else 'metaworld'
    try:
        module = importlib.import_module(f'lpgftw_ros.commands.bench_sampling_{kind}')
    except ImportError as error:
        raise LpgftwError(f'a peer is not installed: {error} (see requirements-dev.txt)') from None
    if kind == 'bodies':
        return dict(module.measure_body(name, rounds, workers))
    return dict(module.measure_mt10(rounds, workers))


def _text(results: dict[str, dict[str, Any]]) -> str:
    lines = []
    for name, values in results.items():
        lines.append(f'{name} (control steps/s, then ratios)')
        for key, value in values.items():
            lines.append(
                f'  {key:<18}{value:>12.2f}'
                if key.startswith('ratio')
                else f'  {key:<18}{value:>12.0f}'
            )
    return '\n'.join(lines)
