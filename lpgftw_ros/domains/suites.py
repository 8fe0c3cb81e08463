"""Suites: named lists of tasks, read from YAML.

A suite file has these keys (`tasks` only is required):

    description: one line
    kind: body | metaworld | gymnasium      default kind of its tasks
    horizon: 1000                           control steps per trajectory
    hidden: []                              default policy: [] linear, [32, 32] two tanh layers
    defaults: {body: hopper}                settings every task starts from
    tasks:                                  unique names; other keys are the task's settings
      - {name: gravity-00, gravity: 0.53}
    orders: {50: [1, 0]}                    published orders per seed, as task indices
    sequence: [gravity-00, gravity-00]      a fixed order for every seed, repeats allowed

A task may override `kind` and `horizon`. What a setting means is the business of its kind: the
module `<kind>_settings` checks it without loading a simulator.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
import importlib
from pathlib import Path
from typing import Any, get_args, Literal

import yaml

from lpgftw_ros.errors import InvalidConfig, UnknownName
from lpgftw_ros.learning.randomness import generator, Purpose
from lpgftw_ros.resources import data_folder

Kind = Literal['body', 'metaworld', 'gymnasium']
KINDS: tuple[str, ...] = get_args(Kind)

_SUITE_KEYS = {
    'description',
    'kind',
    'horizon',
    'hidden',
    'defaults',
    'tasks',
    'orders',
    'sequence',
}


@dataclass(frozen=True)
class TaskSpec:
    """One task: everything an environment is built from."""

    name: str
    kind: str
    settings: Mapping[str, Any]
    horizon: int = 1000

    def __post_init__(self) -> None:
        """Check the kind, the horizon and the settings."""
        if self.kind not in KINDS:
            raise UnknownName('kind of task', self.kind, KINDS)
        if not isinstance(self.horizon, int) or self.horizon < 1:
            raise InvalidConfig(f"task '{self.name}': horizon must be a positive integer")
        try:
            self._kind_module.check_settings(self.settings)
        except InvalidConfig as error:
            raise InvalidConfig(f"task '{self.name}': {error}") from None

    @property
    def _kind_module(self) -> Any:
        return importlib.import_module(f'lpgftw_ros.domains.{self.kind}_settings')

    @property
    def dimensions(self) -> tuple[int, int]:
        """Observation and action dimension, known without building the environment."""
        dims: tuple[int, int] = self._kind_module.dimensions(self.settings)
        return dims

    @property
    def deterministic_resets(self) -> bool:
        """Whether every episode starts alike, so that one mean-action episode tells all."""
        return bool(self._kind_module.deterministic_resets(self.settings))


@dataclass(frozen=True)
class Suite:
    """Tasks that are learned one after another."""

    name: str
    tasks: tuple[TaskSpec, ...]
    horizon: int = 1000
    hidden: tuple[int, ...] = ()
    """Widths of the default policy; empty for a linear one."""
    description: str = ''
    published_orders: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Seed to task indices, as the authors' code drew them."""
    sequence: tuple[str, ...] = ()
    """A fixed order for every seed; empty if the seed decides."""

    @property
    def task_names(self) -> tuple[str, ...]:
        """Names of the tasks, in the order of the file."""
        return tuple(task.name for task in self.tasks)

    def task(self, name: str) -> TaskSpec:
        """Return the task of that name."""
        for task in self.tasks:
            if task.name == name:
                return task
        raise UnknownName(f'task in suite {self.name}', name, self.task_names)

    def order(self, seed: int) -> tuple[str, ...]:
        """Return the order in which a lifetime with this seed meets the tasks."""
        if self.sequence:
            return self.sequence
        if seed in self.published_orders:
            indices = self.published_orders[seed]
        else:
            permutation = generator(seed, Purpose.TASK_ORDER).permutation(len(self.tasks))
            indices = tuple(int(i) for i in permutation)
        return tuple(self.tasks[i].name for i in indices)


def suite_names() -> tuple[str, ...]:
    """Return the names of the suites that come with the package."""
    return tuple(sorted(path.stem for path in data_folder('sim/suites').glob('*.yaml')))


def load_suite(name_or_path: str | Path) -> Suite:
    """Read a suite that comes with the package, or a user's own YAML file."""
    text = str(name_or_path)
    if text.endswith(('.yaml', '.yml')):
        path = Path(text).expanduser()
        if not path.is_file():
            raise InvalidConfig(f'there is no suite file {path}')
    else:
        if text not in suite_names():
            raise UnknownName('suite', text, suite_names())
        path = data_folder('sim/suites') / f'{text}.yaml'
    try:
        content = yaml.load(path.read_text(encoding='utf-8'), Loader=_Loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidConfig(f'{path} is not YAML: {" ".join(str(error).split())}') from None
    try:
        return _suite(path.stem, content)
    except InvalidConfig as error:
        raise InvalidConfig(f'suite {path.stem}: {error}') from None


_Loader = getattr(yaml, 'CSafeLoader', yaml.SafeLoader)


def _suite(name: str, content: Any) -> Suite:
    """Build a suite from the content of its file."""
    if not isinstance(content, dict) or not isinstance(content.get('tasks'), list):
        raise InvalidConfig("the file must be a mapping with a list 'tasks'")
    unknown = {str(key) for key in content} - _SUITE_KEYS
    if unknown:
        raise UnknownName('key of a suite file', min(unknown), sorted(_SUITE_KEYS))
    tasks = tuple(_task(content, entry) for entry in content['tasks'])
    names = [task.name for task in tasks]
    if not names or len(set(names)) < len(names):
        raise InvalidConfig('a suite needs at least one task, and their names must differ')
    sequence = tuple(str(task) for task in content.get('sequence') or ())
    for task in sequence:
        if task not in names:
            raise UnknownName(f'task in suite {name}', task, names)
    return Suite(
        name=name,
        tasks=tasks,
        horizon=content.get('horizon', 1000),
        hidden=_hidden(content.get('hidden') or []),
        description=str(content.get('description', '')),
        published_orders=_orders(content.get('orders') or {}, len(tasks)),
        sequence=sequence,
    )


def _task(content: Mapping[str, Any], entry: Any) -> TaskSpec:
    """Build one task: the suite's defaults, then its own keys."""
    if not isinstance(entry, dict) or not isinstance(entry.get('name'), str):
        raise InvalidConfig(f"every task must be a mapping with a 'name', got {entry!r}")
    settings = {**(content.get('defaults') or {}), **entry}
    name = settings.pop('name')
    kind = settings.pop('kind', content.get('kind', 'gymnasium'))
    horizon = settings.pop('horizon', content.get('horizon', 1000))
    return TaskSpec(name=name, kind=kind, settings=settings, horizon=horizon)


def _hidden(widths: Any) -> tuple[int, ...]:
    if not isinstance(widths, list) or not all(isinstance(w, int) and w > 0 for w in widths):
        raise InvalidConfig(f'hidden must be a list of positive widths, got {widths!r}')
    return tuple(widths)


def _orders(orders: Any, n_tasks: int) -> dict[int, tuple[int, ...]]:
    """Check that every published order is a permutation of the task indices."""
    if not isinstance(orders, dict):
        raise InvalidConfig('orders must map seeds to lists of task indices')
    for seed, order in orders.items():
        is_order = isinstance(order, list) and sorted(order) == list(range(n_tasks))
        if not isinstance(seed, int) or not is_order:
            raise InvalidConfig(f'the order of seed {seed!r} must list every task index once')
    return {seed: tuple(order) for seed, order in orders.items()}
