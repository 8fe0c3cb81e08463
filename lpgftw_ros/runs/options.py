"""From the given options to the configuration of a run; `runs.settings` declares them."""

import argparse
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, Field, field, fields, replace
from pathlib import Path
from typing import Any

from lpgftw_ros import arguments
from lpgftw_ros.domains.suites import load_suite
from lpgftw_ros.errors import InvalidConfig
from lpgftw_ros.runs.config import resolve, RunConfig, task_sequence
from lpgftw_ros.runs.folder import read_config, require_same, require_same_tasks
from lpgftw_ros.runs.settings import (
    AS_PRESET,
    ClusterOption,
    KEY_VALUES,
    PRESETS,
    SamplingOptions,
    TrainOptions,
    typed_help,
)

_READERS: dict[str, Callable[[str], Any]] = {
    'text': arguments.text,
    'folder': arguments.folder,
    'file': arguments.run_or_file,
    'new_folder': arguments.new_folder,
}


# -- the command line ------------------------------------------------------------------------


def add_train_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `lpgftw train`."""
    add_options(parser, TrainOptions)
    add_options(parser, ClusterOption)


def add_sampling_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how tasks are simulated, without the suite."""
    add_options(parser, SamplingOptions, without=('suite',))


def sampling_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return how tasks are to be simulated: what was said, and the defaults."""
    names = [item.name for item in fields(SamplingOptions) if item.name != 'suite']
    said = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    options = SamplingOptions(**said)
    return {name: getattr(options, name) for name in names}


def add_options(
    parser: argparse.ArgumentParser,
    kind: type,
    defaults: Mapping[str, Any] | None = None,
    without: Container[str] = (),
) -> None:
    """Add every declared option; a missing one is None. `defaults` are only shown."""
    for item in fields(kind):
        if item.name in without:
            continue
        flag = '--' + item.name.replace('_', '-')
        default = (defaults or {}).get(item.name, item.default)
        text = typed_help(item).replace(
            '; -1: as the preset says', ' (default: as the preset says)'
        )
        if default not in ('', AS_PRESET):
            text += f' (default {str(default).lower() if isinstance(default, bool) else default})'
        if item.metadata.get('reads') == KEY_VALUES:
            text = text.partition(', several')[0] + '; may be repeated'
            parser.add_argument(
                '--set', action='append', metavar='KEY=VALUE', dest=item.name, help=text
            )
        elif isinstance(item.default, bool):
            action = argparse.BooleanOptionalAction
            parser.add_argument(flag, action=action, default=None, help=text)
        elif item.metadata.get('alone'):
            const = item.metadata['alone']
            parser.add_argument(flag, type=_reader(item), help=text, nargs='?', const=const)
        else:
            parser.add_argument(flag, type=_reader(item), help=text, metavar=_metavar(item))


def _reader(item: 'Field[Any]') -> Callable[[str], Any]:
    if isinstance(item.default, int):
        least = item.metadata.get('least', item.metadata['min'])
        return arguments.whole(least, item.metadata['max'])
    if isinstance(item.default, float):
        return arguments.real(item.metadata['min'], item.metadata['max'])
    return _READERS.get(item.metadata.get('reads', ''), str)


def _metavar(item: 'Field[Any]') -> str | None:
    choices = [choice for choice in item.metadata.get('choices') or () if choice]
    return '{' + ','.join(choices) + '}' if choices else None


def given_options(args: argparse.Namespace, kind: type = TrainOptions) -> dict[str, Any]:
    """Return the options that were given on the command line, under their own names."""
    values: dict[str, Any] = {}
    for item in fields(kind):
        value = getattr(args, item.name, None)
        if value is None:
            continue
        if isinstance(value, list):
            value = ';'.join(value)
        values[item.name] = str(value) if isinstance(value, Path) else value
    return values


# -- the request for a run -------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions:
    """The request for a run; None stands for an option that was not given."""

    suite: str | None = None
    learner: str | None = None
    tasks: str | None = None
    preset: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the run or of the learner under their plain names."""

    @classmethod
    def from_options(cls, values: Mapping[str, Any]) -> 'RunOptions':
        """Return the request of the given options, by the names `runs.settings` declares."""
        texts = str(values.get('settings') or '').split(';')
        settings: dict[str, Any] = dict(key_value(text) for text in texts if text.strip())
        for item in fields(TrainOptions):
            if item.metadata.get('loop') and values.get(item.name, AS_PRESET) != AS_PRESET:
                settings[item.name] = values[item.name]
        names = ('suite', 'learner', 'tasks', 'preset')
        said = {name: values[name] for name in names if values.get(name) not in (None, '')}
        return cls(**said, settings=settings)

    def new_run(self) -> RunConfig:
        """Return the configuration of a new run; missing options have their defaults."""
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
        """Return the configuration of a run to continue.

        Raise `InvalidConfig` that names every option that differs from the saved run.
        """
        unchanged = self.suite is None or is_suite_of(self.suite, saved)
        if self.suite is not None and unchanged:
            require_same_tasks(saved, self.suite)
        settings = {**saved.settings(), **self._preset_settings(saved), **self.settings}
        asked = resolve(saved.suite_source, saved.learner, overrides=settings)
        tasks = saved.tasks
        if self.tasks is not None and unchanged:
            tasks = task_sequence(load_suite(saved.suite_source), self.tasks, asked.loop.seed)
        learner = saved.learner if self.learner is None else self.learner
        suite = saved.suite if unchanged else str(self.suite)
        require_same(saved, replace(asked, suite=suite, learner=learner, tasks=tasks))
        return saved

    def _preset_settings(self, saved: RunConfig) -> dict[str, Any]:
        """Return the settings of the chosen preset that differ from the other preset."""
        if self.preset is None:
            return {}
        chosen, *presets = (
            resolve(saved.suite_source, saved.learner, preset=preset).settings()
            for preset in (self.preset, *PRESETS)
        )
        return {k: v for k, v in chosen.items() if any(other[k] != v for other in presets)}


def is_suite_of(suite: str, run: RunConfig) -> bool:
    """Return whether a name or path stands for the suite of a run."""
    path = Path(suite).expanduser().resolve()
    own = (run.suite, run.suite_source)
    return suite in own or path in [Path(name).expanduser().resolve() for name in own]


def run_config(args: argparse.Namespace) -> RunConfig:
    """Return the configuration the command line asks for.

    With --resume it is the saved one, and the options may not differ from it.
    """
    options = RunOptions.from_options(given_options(args))
    if not args.resume:
        return options.new_run()
    if args.suite is None:
        if args.out is None:
            raise InvalidConfig('--resume needs --out, the run folder to continue')
        return options.continued(read_config(args.out))
    out = args.out or default_out(options.new_run())
    if not (out / 'config.yaml').exists():  # killed right after it started
        return options.new_run()
    return options.continued(read_config(out))


def key_value(text: str) -> tuple[str, str]:
    """Split KEY=VALUE."""
    key, found, value = text.partition('=')
    if not found or not key.strip():
        raise InvalidConfig(f"--set takes KEY=VALUE, got '{text}'")
    return key.strip(), value.strip()


def default_out(config: RunConfig) -> Path:
    """Return the default folder of a run."""
    suite = Path(config.suite).stem
    return Path('runs') / f'{suite}-{config.learner}-{config.loop.seed}'
