"""The complete settings of a run: one frozen dataclass, filled from presets and overrides."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
import re
from typing import Any

import yaml

from lpgftw_ros.domains.suites import load_suite, Suite
from lpgftw_ros.errors import InvalidConfig, UnknownName
from lpgftw_ros.learning.config import check_settings, configure, setting
from lpgftw_ros.learning.registry import LEARNERS
from lpgftw_ros.resources import data_folder

FORMAT = 1
"""Number of the run-folder format; a folder of another number is refused."""
PRESETS = ('published', 'paper')
"""Whose equations: those of the authors' code, which the numbers are from, or of the text."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoopConfig:
    """How long each task is learned and how it is measured."""

    seed: int = setting(50, 'root of all random numbers', min=0, max=2**31 - 1)
    iterations: int = setting(50, 'policy steps per task (N)', min=0, max=100_000)
    trajectories: int = setting(10, 'trajectories per policy step', min=1, max=10_000)
    update_trajectories: int = setting(
        10, 'extra trajectories for the gradient and curvature of the update', min=1, max=10_000
    )
    evaluation_episodes: int = setting(
        10, 'mean-action episodes per evaluation where resets are random', min=1, max=10_000
    )
    stochastic_episodes: int = setting(
        10, 'episodes with exploration at tune and final', min=0, max=10_000
    )
    matrix: bool = setting(False, 'after each task evaluate all tasks met so far')
    threads: int = setting(1, 'BLAS and torch threads of the learner', min=1, max=64)

    def __post_init__(self) -> None:
        """Reject values outside their range."""
        check_settings(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """Everything that decides the numbers of a run."""

    suite: str
    learner: str
    tasks: tuple[str, ...]
    """Tasks in the order they are met; repeats are revisits."""
    hidden: tuple[int, ...]
    """Widths of the policy: none (linear) or two."""
    loop: LoopConfig
    method: Mapping[str, Any]
    """Settings of the learner, complete."""

    @property
    def method_name(self) -> str:
        """Name of the learner's method; `ewc-h` is `ewc` with another width."""
        return method_of(self.learner)

    def settings(self) -> dict[str, Any]:
        """Return everything `--set` takes, under its plain name."""
        return {'hidden': self.hidden, **asdict(self.loop), **self.method}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values as they stand in config.yaml."""
        return {
            'format': FORMAT,
            'suite': self.suite,
            'learner': self.learner,
            'tasks': list(self.tasks),
            'hidden': list(self.hidden),
            'loop': asdict(self.loop),
            'method': dict(self.method),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> 'RunConfig':
        """Read what `to_dict` wrote; settings that are newer than it have their defaults."""
        values = dict(values)
        if (found := values.pop('format', None)) != FORMAT:
            raise InvalidConfig(f'this run folder has format {found}, expected {FORMAT}')
        try:
            values['tasks'], values['hidden'] = tuple(values['tasks']), tuple(values['hidden'])
            values['loop'] = configure(LoopConfig, values['loop'])
            method_type = LEARNERS[method_of(values['learner'])][0]
            values['method'] = asdict(configure(method_type, values['method']))
            return cls(**values)
        except (KeyError, TypeError) as error:
            raise InvalidConfig(f'config.yaml is not complete: {error}') from None


def method_of(learner: str) -> str:
    """Return the method behind a learner's name."""
    return 'ewc' if learner == 'ewc-h' else learner


def learner_names() -> tuple[str, ...]:
    """Return every name `--learner` takes."""
    return (*LEARNERS, 'ewc-h')


def resolve(
    suite_name: str,
    learner: str,
    *,
    overrides: Mapping[str, Any] | None = None,
    tasks: str | None = None,
    preset: str = 'published',
) -> RunConfig:
    """Build the configuration of a run: defaults, then the suite's preset, then overrides.

    `overrides` holds settings of the run or of the learner under their plain names; strings are
    read as the type of the setting. `tasks` is a count or a comma-separated list of names.
    """
    if learner not in learner_names():
        raise UnknownName('learner', learner, learner_names())
    suite = load_suite(suite_name)
    method_type = LEARNERS[method_of(learner)][0]
    settings: dict[str, Any] = {'hidden': suite.hidden}
    for layer in (*preset_layers(suite.name, learner, preset), dict(overrides or {})):
        settings |= layer
    if method_of(learner) == 'pg-ella':
        settings['iterations'] = 0
    hidden = _widths(settings.pop('hidden'))
    loop_names = [f.name for f in fields(LoopConfig)]
    method_names = [f.name for f in fields(method_type)]
    for name in settings:
        if name not in loop_names and name not in method_names:
            raise UnknownName(f'setting of {learner}', name, [*loop_names, *method_names])
    loop = LoopConfig(**{n: v for n, v in settings.items() if n in loop_names})
    method = method_type(**{n: v for n, v in settings.items() if n in method_names})
    return RunConfig(
        suite=suite_name,
        learner=learner,
        tasks=task_sequence(suite, tasks, loop.seed),
        hidden=hidden,
        loop=loop,
        method=asdict(method),
    )


def _widths(value: Any) -> tuple[int, ...]:
    try:
        items = [part for part in value.split(',') if part] if isinstance(value, str) else value
        return tuple(int(item) for item in items)
    except (TypeError, ValueError):
        raise InvalidConfig(f"hidden takes widths such as 32,32, got '{value}'") from None


def preset_layers(suite: str, learner: str, preset: str) -> list[dict[str, Any]]:
    """Return the preset settings of a suite and learner, weakest first."""
    if preset not in PRESETS:
        raise UnknownName('preset', preset, PRESETS)
    layers: list[dict[str, Any]] = []
    folder = data_folder('config') / 'presets'
    for name in ('default', suite) if preset == 'published' else ('default', suite, preset):
        path = folder / f'{name}.yaml'
        if path.is_file():
            content = yaml.safe_load(path.read_text()) or {}
            layers.append(content.get('all', {}))
            layers.append(content.get(method_of(learner), {}))
            if learner != method_of(learner):
                layers.append(content.get(learner, {}))
    return layers


def task_sequence(suite: Suite, tasks: str | None, seed: int) -> tuple[str, ...]:
    """Return the tasks of a run in order: all, the first few, or the ones named."""
    order = suite.order(seed)
    if tasks is None:
        return tuple(order)
    if re.fullmatch('[+-]?[0-9]+', tasks):
        count = int(tasks)
        if not 1 <= count <= len(order):
            raise InvalidConfig(f'tasks must be 1 to {len(order)} or names, got {count}')
        return tuple(order[:count])
    names = tuple(name.strip() for name in tasks.split(','))
    return tuple(suite.task(name).name for name in names)
