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
    settings: {max_kl: 0.02}                what `--set` would say, for every run of the suite

A task may override `kind` and `horizon`. The kind decides what a setting means. It is a package
with two modules: `settings.describe(settings, folder)` checks a task and returns its `Traits`,
`env.make(task, n, workers)` builds n rows of it. Other packages add kinds under the entry-point
group `lpgftw.domains`.
"""

from collections.abc import Mapping
import copy
from dataclasses import dataclass, field
from functools import cache
import importlib
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from lpgftw_ros.errors import InvalidConfig, missing_extra, UnknownName
from lpgftw_ros.learning.randomness import generator, Purpose
from lpgftw_ros.resources import data_folder, read_yaml

KINDS = {
    'body': 'lpgftw_ros.domains.bodies',
    'metaworld': 'lpgftw_ros.domains.metaworld',
    'gymnasium': 'lpgftw_ros.domains.gym',
}
"""Built-in kinds of task and their packages."""
ENTRY_POINTS = 'lpgftw.domains'
"""Group in which other packages name theirs: `kind = "package"`."""

_SUITE_KEYS = {
    'description',
    'kind',
    'horizon',
    'hidden',
    'defaults',
    'tasks',
    'orders',
    'sequence',
    'settings',
}


class Traits(NamedTuple):
    """What a task's settings tell before its environment is built."""

    obs_dim: int
    act_dim: int
    deterministic_resets: bool = False
    """Every episode starts in the same state, so one mean-action episode is enough."""
    threads: bool = False
    """Its physics runs in this process and releases the interpreter lock, so rows run in
    threads."""
    files: tuple[Path, ...] = ()
    """Python files next to the suite that it needs; they are copied into the run folder with
    it."""


@cache
def kinds() -> Mapping[str, str]:
    """Return the package of every kind of task, including other installed packages."""
    found = {point.name: point.value for point in metadata.entry_points(group=ENTRY_POINTS)}
    return {**found, **KINDS}


def kind_module(kind: str, name: str) -> Any:
    """Return the module `settings` or `env` of a kind."""
    try:
        return importlib.import_module(f'{kinds()[kind]}.{name}')
    except ImportError as error:
        if (extra := missing_extra(error)) is not None:
            raise extra from None
        raise InvalidConfig(f"kind of task '{kind}' cannot be loaded: {error}") from None


@dataclass(frozen=True)
class TaskSpec:
    """One task: everything an environment is built from."""

    name: str
    kind: str
    settings: Mapping[str, Any]
    horizon: int = 1000
    folder: Path | None = field(default=None, compare=False)
    """Folder of the suite's file; its tasks can import the Python files there."""
    traits: Traits = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Check the kind, the horizon and the settings."""
        if self.kind not in kinds():
            raise UnknownName('kind of task', self.kind, kinds())
        if not isinstance(self.horizon, int) or self.horizon < 1:
            raise InvalidConfig(f"task '{self.name}': horizon must be a positive integer")
        describe = kind_module(self.kind, 'settings').describe
        try:
            traits = describe(self.settings, self.folder)
        except (InvalidConfig, UnknownName) as error:
            raise InvalidConfig(f"task '{self.name}': {error}") from None
        object.__setattr__(self, 'traits', traits)

    def moved(self, folder: Path | None) -> 'TaskSpec':
        """Return the same task with its Python files in another folder."""
        other = copy.copy(self)
        object.__setattr__(other, 'folder', folder)
        return other

    @property
    def dimensions(self) -> tuple[int, int]:
        """Observation and action dimension."""
        return self.traits.obs_dim, self.traits.act_dim

    @property
    def has_success(self) -> bool:
        """Whether the task defines success; bodies do not."""
        return self.kind != 'body'

    @property
    def deterministic_resets(self) -> bool:
        """Whether every episode starts in the same state."""
        return self.traits.deterministic_resets


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
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of every run of this suite, under their plain names; a run may override them."""

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

    @property
    def files(self) -> tuple[Path, ...]:
        """Python files next to the suite that its tasks need."""
        return tuple(dict.fromkeys(file for task in self.tasks for file in task.traits.files))

    def order(self, seed: int) -> tuple[str, ...]:
        """Return the order of the tasks in a lifetime with this seed."""
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


def suite_file(name_or_path: str | Path) -> Path:
    """Return the file of a suite that comes with the package, or a user's own YAML file."""
    text = str(name_or_path)
    if text.endswith(('.yaml', '.yml')):
        path = Path(text).expanduser()
        if not path.is_file():
            raise InvalidConfig(f'there is no suite file {path}')
        return path
    if text not in suite_names():
        raise UnknownName('suite', text, suite_names())
    return data_folder('sim/suites') / f'{text}.yaml'


def load_suite(name_or_path: str | Path) -> Suite:
    """Read a suite that comes with the package, or a user's own YAML file."""
    path = suite_file(name_or_path)
    try:
        content = read_yaml(path)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidConfig(f'{path} is not YAML: {" ".join(str(error).split())}') from None
    try:
        return _suite(path.stem, content, path.resolve().parent)
    except (InvalidConfig, UnknownName) as error:
        raise InvalidConfig(f'suite {path.stem}: {error}') from None


def endless_tasks(name_or_path: str | Path) -> frozenset[str]:
    """Return the tasks of a suite without a success criterion; none if the suite is not here."""
    try:
        suite = load_suite(name_or_path)
    except InvalidConfig:
        return frozenset()
    return frozenset(task.name for task in suite.tasks if not task.has_success)


def _suite(name: str, content: Any, folder: Path) -> Suite:
    """Build a suite from the content of its file."""
    if not isinstance(content, dict) or not isinstance(content.get('tasks'), list):
        raise InvalidConfig("the file must be a mapping with a list 'tasks'")
    unknown = {str(key) for key in content} - _SUITE_KEYS
    if unknown:
        raise UnknownName('key of a suite file', min(unknown), sorted(_SUITE_KEYS))
    tasks = tuple(_task(content, entry, folder) for entry in content['tasks'])
    names = [task.name for task in tasks]
    if not names or len(set(names)) < len(names):
        raise InvalidConfig('a suite needs at least one task, and their names must differ')
    _require_one_shape(tasks)
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
        settings=_settings(content.get('settings') or {}),
    )


def _require_one_shape(tasks: tuple[TaskSpec, ...]) -> None:
    """Raise unless one policy fits all tasks."""
    shapes: dict[tuple[int, int], str] = {}
    for task in tasks:
        shapes.setdefault(task.dimensions, task.name)
    if len(shapes) > 1:
        parts = (f'{name} has {seen} and {acted}' for (seen, acted), name in shapes.items())
        raise InvalidConfig(
            'all tasks of a suite share one policy, but their observations and actions differ: '
            + '; '.join(parts)
        )


def _task(content: Mapping[str, Any], entry: Any, folder: Path) -> TaskSpec:
    """Build one task: the suite's defaults, then its own keys."""
    if not isinstance(entry, dict) or not isinstance(entry.get('name'), str):
        raise InvalidConfig(f"every task must be a mapping with a 'name', got {entry!r}")
    settings = {**(content.get('defaults') or {}), **entry}
    name = settings.pop('name')
    kind = settings.pop('kind', content.get('kind', 'gymnasium'))
    horizon = settings.pop('horizon', content.get('horizon', 1000))
    return TaskSpec(name=name, kind=kind, settings=settings, horizon=horizon, folder=folder)


def _hidden(widths: Any) -> tuple[int, ...]:
    if not isinstance(widths, list) or not all(isinstance(w, int) and w > 0 for w in widths):
        raise InvalidConfig(f'hidden must be a list of positive widths, got {widths!r}')
    if len(widths) not in (0, 2):
        raise InvalidConfig(f'hidden must be [] (linear) or two widths, got {widths!r}')
    return tuple(widths)


def _settings(settings: Any) -> dict[str, Any]:
    if not isinstance(settings, dict):
        raise InvalidConfig(f'settings must be a mapping such as max_kl: 0.02, got {settings!r}')
    return {str(name): value for name, value in settings.items()}


def _orders(orders: Any, n_tasks: int) -> dict[int, tuple[int, ...]]:
    """Check that every published order is a permutation of the task indices."""
    if not isinstance(orders, dict):
        raise InvalidConfig('orders must map seeds to lists of task indices')
    for seed, order in orders.items():
        is_order = isinstance(order, list) and sorted(order) == list(range(n_tasks))
        if not isinstance(seed, int) or not is_order:
            raise InvalidConfig(f'the order of seed {seed!r} must list every task index once')
    return {seed: tuple(order) for seed, order in orders.items()}
