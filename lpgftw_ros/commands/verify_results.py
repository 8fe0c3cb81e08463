"""`lpgftw verify-results`: repeat the first iterations of a committed run, compare the bytes."""

import argparse
from contextlib import suppress
import json
from pathlib import Path
import random
import tempfile
from typing import Any

from lpgftw_ros import arguments
from lpgftw_ros.errors import InvalidConfig, LpgftwError
from lpgftw_ros.experiments.run_data import is_pinned
from lpgftw_ros.runs.folder import find_runs, read_config, read_rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        'cells',
        nargs='*',
        metavar='CELL',
        help='such as halfcheetah-gravity/stl/seed-70; without one, one is drawn at random',
    )
    parser.add_argument(
        '--results',
        type=arguments.folder,
        default=Path('results/laptop'),
        help='folder of the committed runs (default results/laptop)',
    )
    parser.add_argument(
        '--iterations', type=arguments.count, default=5, help='iterations to repeat (default 5)'
    )
    parser.add_argument('--seed', type=arguments.seed, help='seed of the draw')
    parser.add_argument(
        '--workers', type=arguments.workers, default=0, help='simulation workers (0: cores)'
    )


class _Enough(Exception):
    """Enough iterations were repeated."""


def run(args: argparse.Namespace) -> int:
    """Verify the cells; exit with 1 if one differs."""
    from lpgftw_ros.runs.environment import limit_threads

    limit_threads(1)
    verdicts = [verify(cell, args.iterations, args.workers) for cell in chosen_cells(args)]
    return 0 if all(verdicts) else 1


def chosen_cells(args: argparse.Namespace) -> list[Path]:
    """Return the run folders that are named, or one drawn at random."""
    runs = [path for path in find_runs([args.results]) if _can_be_repeated(path)]
    if not args.cells:
        pinned = [path for path in runs if is_pinned(path)]
        if not pinned:
            raise InvalidConfig(f'{args.results} has no run with the pinned arithmetic: name one')
        return [random.Random(args.seed).choice(pinned)]
    found = []
    for name in args.cells:
        matching = [path for path in runs if str(path).endswith(f'/{name}') or str(path) == name]
        if len(matching) != 1:
            known = ', '.join(str(path.relative_to(args.results)) for path in runs)
            raise InvalidConfig(f"no cell '{name}' in {args.results}; there are: {known}")
        found += matching
    return found


def _can_be_repeated(path: Path) -> bool:
    """Return whether a run can be repeated alone: pg-ella needs the checkpoints of another."""
    try:
        return read_config(path).method_name != 'pg-ella'
    except LpgftwError:
        return False


def verify(path: Path, iterations: int, workers: int) -> bool:
    """Repeat the first iterations of a run, print and return whether every byte is the same.

    Measures that are newer than the committed run are left out.
    """
    config = read_config(path)
    committed = _iterations(path)[:iterations]
    if not committed:
        raise LpgftwError(f'{path} has no iterations to compare with')
    with tempfile.TemporaryDirectory(prefix='lpgftw-verify-') as folder:
        repeated = _repeat(config, Path(folder) / 'run', len(committed), workers)
    for number, (row, known) in enumerate(zip(repeated, committed, strict=True), start=1):
        ours, theirs = (_bytes({key: one.get(key) for key in known}) for one in (row, known))
        if ours != theirs:
            print(f'{path}: iteration {number} differs\n  committed {theirs}\n  repeated  {ours}')
            if not is_pinned(path):
                print('its arithmetic is not pinned: it repeats on a computer like its own only')
            return False
    print(f'{path}: {len(committed)} iterations are equal, byte by byte')
    return True


def _repeat(config: Any, out: Path, iterations: int, workers: int) -> list[dict[str, Any]]:
    from lpgftw_ros.runs.driver import drive, open_session
    from lpgftw_ros.runs.session import Session

    def look(session: Session) -> None:
        if len(_iterations(out)) >= iterations:
            raise _Enough

    with open_session(config, out, workers=workers) as (session, sampler), suppress(_Enough):
        drive(session, sampler, look)
    return _iterations(out)[:iterations]


def _iterations(out: Path) -> list[dict[str, Any]]:
    return [row for row in read_rows(out) if row['kind'] == 'iteration']


def _bytes(row: dict[str, Any]) -> str:
    """Return a row as it is written, without its timing."""
    return json.dumps({key: value for key, value in row.items() if key != 'timing'})
