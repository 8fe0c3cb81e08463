"""The complete settings of a run: one frozen dataclass, filled from presets and overrides."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, Field, field, fields
import re
from typing import Any

from lpgftw_ros.domains.suites import load_suite, Suite
from lpgftw_ros.errors import InvalidConfig, UnknownName
from lpgftw_ros.learning.config import configure
from lpgftw_ros.learning.registry import LEARNERS
from lpgftw_ros.resources import data_folder, read_yaml
from lpgftw_ros.runs.settings import LoopConfig, PRESETS, ShapeConfig
from lpgftw_ros.runs.storage import FORMAT, READABLE


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """Everything that decides the numbers of a run."""

    suite: str
    learner: str
    tasks: tuple[str, ...]
    """Tasks in order; repeats are revisits."""
    hidden: tuple[int, ...]
    """Widths of the policy: none (linear) or two."""
    loop: LoopConfig
    method: Mapping[str, Any]
    """Settings of the learner, complete."""
    suite_copy: str = field(default='', compare=False)
    """The run folder's own copy of the suite, once there is one."""

    @property
    def suite_source(self) -> str:
        """Where the suite is read from: the run's own copy, else its name or file."""
        return self.suite_copy or self.suite

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
        """Read what `to_dict` wrote; settings it does not have yet get their defaults."""
        values = dict(values)
        if (found := values.pop('format', None)) not in READABLE:
            known = ' and '.join(map(str, READABLE))
            raise InvalidConfig(
                f'this run folder has format {found}, this version reads {known}; '
                f'use the version of lpgftw that made it'
            )
        values.pop('run', None)
        values.pop('knowledge', None)
        try:
            values['tasks'], values['hidden'] = tuple(values['tasks']), tuple(values['hidden'])
            values['loop'] = configure(LoopConfig, values['loop'])
            method_type = LEARNERS[method_of(values['learner'])][0]
            values['method'] = asdict(configure(method_type, _known(values['method'])))
            return cls(**values)
        except (KeyError, TypeError) as error:
            raise InvalidConfig(f'config.yaml is not complete: {error}') from None


RETIRED: Mapping[str, Any] = {'head_start': 'fresh', 'head_margin': None, 'head_penalty': None}
"""Settings that earlier versions had, with the value that left them out; None: any does."""


def _known(method: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of a method without retired ones, which must not have done anything."""
    for name, off in RETIRED.items():
        if off is not None and method.get(name, off) != off:
            raise InvalidConfig(
                f'this run has {name}: {method[name]}, which this version does not know; '
                f'use the version of lpgftw that made it'
            )
    return {name: value for name, value in method.items() if name not in RETIRED}


def method_of(learner: str) -> str:
    """Return the method behind a learner's name."""
    return 'ewc' if learner == 'ewc-h' else learner


def learner_names() -> tuple[str, ...]:
    """Return every name `--learner` takes."""
    return (*LEARNERS, 'ewc-h')


def setting_fields(learner: str) -> dict[str, 'Field[Any]']:
    """Return the declaration of everything `--set` takes for a learner, by its plain name."""
    if learner not in learner_names():
        raise UnknownName('learner', learner, learner_names())
    kinds: tuple[Any, ...] = (ShapeConfig, LoopConfig, LEARNERS[method_of(learner)][0])
    return {item.name: item for kind in kinds for item in fields(kind)}


def resolve(
    suite_name: str,
    learner: str,
    *,
    overrides: Mapping[str, Any] | None = None,
    tasks: str | None = None,
    preset: str = 'published',
) -> RunConfig:
    """Build the configuration of a run: defaults, preset and settings of the suite, overrides.

    `overrides` holds settings of the run or of the learner under their plain names; strings are
    read as the type of the setting. `tasks` is a count or a comma-separated list of names.
    """
    if learner not in learner_names():
        raise UnknownName('learner', learner, learner_names())
    suite = load_suite(suite_name)
    method_type = LEARNERS[method_of(learner)][0]
    settings: dict[str, Any] = {'hidden': suite.hidden}
    layers = preset_layers(suite.name, learner, preset)
    for layer in (*layers, suite.settings, dict(overrides or {})):
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
            content = read_yaml(path) or {}
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
