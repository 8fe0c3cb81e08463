"""Command-line options of a run, shared by `lpgftw train` and `lpgftw up`."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lpgftw_ros import arguments
from lpgftw_ros.domains.suites import load_suite
from lpgftw_ros.errors import InvalidConfig
from lpgftw_ros.runs.config import PRESETS, resolve, RunConfig, task_sequence
from lpgftw_ros.runs.folder import read_config, require_same


def add_train_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that decide what is learned and where it is kept."""
    parser.add_argument(
        '--suite', type=arguments.text, help='suite name or YAML file (see lpgftw tasks)'
    )
    parser.add_argument(
        '--learner', type=arguments.text, help='lpg-ftw (default), stl, ewc, ewc-h, er or pg-ella'
    )
    parser.add_argument(
        '--seed', type=arguments.seed, help='root of all random numbers (default 50)'
    )
    parser.add_argument(
        '--tasks', type=arguments.text, help='how many tasks, or their names separated by commas'
    )
    parser.add_argument('--iterations', type=arguments.whole(0), help='policy steps per task')
    parser.add_argument(
        '--trajectories', type=arguments.count, help='trajectories per policy step'
    )
    parser.add_argument(
        '--workers', type=arguments.workers, default=0, help='simulation workers (0: cores)'
    )
    parser.add_argument(
        '--preset', type=arguments.text, help='published (default) or paper: whose equations'
    )
    parser.add_argument(
        '--set',
        action='append',
        default=[],
        metavar='KEY=VALUE',
        dest='settings',
        help='any setting of the run or the learner; may be repeated',
    )
    parser.add_argument(
        '--source', type=arguments.folder, help='finished STL run pg-ella starts from'
    )
    parser.add_argument('--out', type=arguments.new_folder, help='run folder')
    parser.add_argument('--resume', action='store_true', help='continue the run in --out')


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions:
    """What was asked of a run; None stands for what was not said."""

    suite: str | None = None
    learner: str | None = None
    tasks: str | None = None
    preset: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the run or of the learner under their plain names."""

    def new_run(self) -> RunConfig:
        """Return the configuration of a new run; what was not said has its default."""
        if self.suite is None:
            raise InvalidConfig('--suite is needed; `lpgftw tasks` lists the suites')
        return resolve(
            self.suite,
            'lpg-ftw' if self.learner is None else self.learner,
            overrides=self.settings,
            tasks=self.tasks,
            preset='published' if self.preset is None else self.preset,
        )

    def continued(self, saved: RunConfig) -> RunConfig:
        """Return the configuration of a run to go on with.

        Raise `InvalidConfig` that names everything that was asked for and is otherwise there.
        """
        unchanged = self.suite is None or same_suite(self.suite, saved.suite)
        settings = {**saved.settings(), **self._preset_settings(saved), **self.settings}
        asked = resolve(saved.suite, saved.learner, overrides=settings)
        tasks = saved.tasks
        if self.tasks is not None and unchanged:
            tasks = task_sequence(load_suite(saved.suite), self.tasks, asked.loop.seed)
        learner = saved.learner if self.learner is None else self.learner
        suite = saved.suite if unchanged else str(self.suite)
        require_same(saved, replace(asked, suite=suite, learner=learner, tasks=tasks))
        return saved

    def _preset_settings(self, saved: RunConfig) -> dict[str, Any]:
        """Return what the preset asked for says where presets differ."""
        if self.preset is None:
            return {}
        chosen, *presets = (
            resolve(saved.suite, saved.learner, preset=preset).settings()
            for preset in (self.preset, *PRESETS)
        )
        return {k: v for k, v in chosen.items() if any(other[k] != v for other in presets)}


def same_suite(one: str, other: str) -> bool:
    """Return whether two names or paths stand for the same suite."""
    return one == other or Path(one).expanduser().resolve() == Path(other).expanduser().resolve()


def run_options(args: argparse.Namespace) -> RunOptions:
    """Return what the command line asks of a run."""
    settings: dict[str, Any] = dict(key_value(text) for text in args.settings)
    for name in ('seed', 'iterations', 'trajectories'):
        if getattr(args, name) is not None:
            settings[name] = getattr(args, name)
    return RunOptions(
        suite=args.suite,
        learner=args.learner,
        tasks=args.tasks,
        preset=args.preset,
        settings=settings,
    )


def run_config(args: argparse.Namespace) -> RunConfig:
    """Return the configuration the options ask for.

    With --resume it is the one the folder was made with, and the options may not differ from it.
    """
    options = run_options(args)
    if not args.resume:
        return options.new_run()
    if args.suite is None:
        if args.out is None:
            raise InvalidConfig('--resume needs --out, the run folder to continue')
        return options.continued(read_config(args.out))
    out = args.out or default_out(options.new_run())
    if not (out / 'config.yaml').exists():  # killed in its first moment
        return options.new_run()
    return options.continued(read_config(out))


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
