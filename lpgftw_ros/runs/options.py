"""Command-line options of a run, shared by `lpgftw train` and `lpgftw up`."""

import argparse
from pathlib import Path
from typing import Any

from lpgftw_ros.errors import InvalidConfig
from lpgftw_ros.runs.config import resolve, RunConfig
from lpgftw_ros.runs.folder import read_config


def add_train_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that decide what is learned and where it is kept."""
    parser.add_argument('--suite', help='suite name or YAML file (see lpgftw tasks)')
    parser.add_argument('--learner', help='lpg-ftw (default), stl, ewc, ewc-h, er or pg-ella')
    parser.add_argument('--seed', type=int, help='root of all random numbers (default 50)')
    parser.add_argument('--tasks', help='how many tasks, or their names separated by commas')
    parser.add_argument('--iterations', type=int, help='policy steps per task')
    parser.add_argument('--trajectories', type=int, help='trajectories per policy step')
    parser.add_argument('--workers', type=int, default=0, help='simulation workers (0: cores)')
    parser.add_argument(
        '--preset', default='published', help='published (default) or paper: whose equations'
    )
    parser.add_argument(
        '--set',
        action='append',
        default=[],
        metavar='KEY=VALUE',
        dest='settings',
        help='any setting of the run or the learner; may be repeated',
    )
    parser.add_argument('--source', type=Path, help='finished STL run pg-ella starts from')
    parser.add_argument('--out', type=Path, help='run folder')
    parser.add_argument('--resume', action='store_true', help='continue the run in --out')


def run_config(args: argparse.Namespace) -> RunConfig:
    """Return the configuration the options ask for.

    With --resume and no --suite it is the one the folder was made with.
    """
    if args.workers < 0:
        raise InvalidConfig(f'workers must be 0 (all cores) or positive, got {args.workers}')
    if args.resume and args.suite is None:
        if args.out is None:
            raise InvalidConfig('--resume needs --out, the run folder to continue')
        return read_config(args.out)
    if args.suite is None:
        raise InvalidConfig('--suite is needed; `lpgftw tasks` lists the suites')
    overrides: dict[str, Any] = dict(key_value(text) for text in args.settings)
    for name in ('seed', 'iterations', 'trajectories'):
        if getattr(args, name) is not None:
            overrides[name] = getattr(args, name)
    learner = args.learner or 'lpg-ftw'
    return resolve(args.suite, learner, overrides=overrides, tasks=args.tasks, preset=args.preset)


def key_value(text: str) -> tuple[str, str]:
    """Split KEY=VALUE."""
    key, found, value = text.partition('=')
    if not found or not key.strip():
        raise InvalidConfig(f"--set takes KEY=VALUE, got '{text}'")
    return key.strip(), value.strip()


def default_out(config: RunConfig) -> Path:
    """Return the folder a run goes to when none is named."""
    suite = Path(config.suite).stem
    return Path('runs') / f'{suite}-{config.learner}-{config.loop.seed}'
