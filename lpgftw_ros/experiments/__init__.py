"""An experiment: which methods, on which suites, with which seeds and budget.

The modules beside this one run experiments and compare the runs.

A spec is a YAML file. Top-level values hold for every profile; a profile overrides them::

    title: HalfCheetah, gravity
    suites: [halfcheetah-gravity]
    seeds: [50, 60, 70, 80, 90]
    methods: [lpg-ftw, stl, {learner: er, seeds: [50]}, {label: ewc-2, learner: ewc, set: {…}}]
    profiles:
      smoke: {seeds: [50], tasks: 2, iterations: 3, trajectories: 4, methods: [lpg-ftw, stl]}
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from lpgftw_ros.errors import InvalidConfig, UnknownName
from lpgftw_ros.resources import read_yaml

PROFILES = ('smoke', 'laptop', 'paper')
SOURCE_LABEL = 'stl'
"""Method whose run of the same suite and seed PG-ELLA starts from."""
_OPTIONS = ('tasks', 'iterations', 'trajectories', 'preset')


@dataclass(frozen=True, slots=True)
class Cell:
    """One training run of an experiment."""

    suite: str
    label: str
    learner: str
    seed: int
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of `lpgftw train`, without dashes."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Values of `--set`."""
    source: str | None = None
    """Label of the method whose run this one starts from."""

    @property
    def name(self) -> str:
        """Short name for progress and tables."""
        return f'{Path(self.suite).stem}/{self.label}/seed-{self.seed}'

    @property
    def source_name(self) -> str | None:
        """Name of the cell this one starts from."""
        stem = Path(self.suite).stem
        return None if self.source is None else f'{stem}/{self.source}/seed-{self.seed}'

    def folder(self, root: Path) -> Path:
        """Return the run folder of this cell."""
        return root / self.name

    def arguments(self, root: Path) -> list[str]:
        """Return the words after `lpgftw train` that run this cell."""
        words = ['--suite', self.suite, '--learner', self.learner, '--seed', str(self.seed)]
        for key in _OPTIONS:
            if key in self.options:
                words += [f'--{key}', self.options[key]]
        for key, value in self.settings.items():
            words += ['--set', f'{key}={value}']
        if self.source_name is not None:
            words += ['--source', str(root / self.source_name)]
        return [*words, '--out', str(self.folder(root))]


@dataclass(frozen=True, slots=True)
class ExperimentSpec:
    """A table of cells, with what it stands for in the paper."""

    name: str
    profile: str | None
    title: str
    paper: str
    """Figure or table of the paper this repeats."""
    suites: tuple[str, ...]
    diversity: bool
    """True if policies are also run on each other's tasks."""
    cells: tuple[Cell, ...]

    def __post_init__(self) -> None:
        """Reject tables that cannot run."""
        names = [cell.name for cell in self.cells]
        if twice := {name for name in names if names.count(name) > 1}:
            raise InvalidConfig(f"spec '{self.name}' lists {', '.join(sorted(twice))} twice")
        for cell in self.cells:
            if cell.source_name is not None and cell.source_name not in names:
                raise InvalidConfig(
                    f"spec '{self.name}': {cell.name} starts from {cell.source}, "
                    f'which is not among the methods'
                )


def load_spec(path: Path, profile: str | None = None) -> ExperimentSpec:
    """Read a spec file with one of its profiles; without a profile the top-level values hold."""
    try:
        content = read_yaml(path)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        text = ' '.join(str(error).split())
        raise InvalidConfig(f"cannot read the spec '{path}': {text}") from error
    if not isinstance(content, dict):
        raise InvalidConfig(f"'{path}' is not an experiment spec: expected keys and values")
    profiles = _mapping(path.stem, 'profiles', content.pop('profiles', None))
    if profile is not None and profile not in profiles:
        raise UnknownName('profile', profile, profiles)
    own = {} if profile is None else _mapping(path.stem, profile, profiles[profile])
    merged = {str(key): value for key, value in {**content, **own}.items()}
    known = ('title', 'paper', 'suites', 'seeds', 'methods', 'set', 'diversity', *_OPTIONS)
    for key in merged:
        if key not in known:
            raise UnknownName(f"key in '{path.name}'", key, known)
    return _build(path.stem, profile, merged)


def load_whole_spec(path: Path) -> ExperimentSpec:
    """Read a spec with the cells of the paper, and those that only a laptop's profile has."""
    whole = load_spec(path, 'paper')
    cells = {cell.name: cell for cell in whole.cells}
    for cell in load_spec(path, 'laptop').cells:
        cells.setdefault(cell.name, cell)
    return replace(whole, cells=tuple(cells.values()))


def _build(name: str, profile: str | None, values: Mapping[str, Any]) -> ExperimentSpec:
    suites, seeds, methods = (_list(name, values, key) for key in ('suites', 'seeds', 'methods'))
    cells = [
        _cell(name, values, suite, method, seed)
        for suite in suites
        for seed in seeds
        for method in methods
        if seed in _seeds(name, method, seeds)
    ]
    return ExperimentSpec(
        name=name,
        profile=profile,
        title=str(values.get('title', name)),
        paper=str(values.get('paper', '')),
        suites=tuple(str(suite) for suite in suites),
        diversity=bool(values.get('diversity', False)),
        cells=tuple(cells),
    )


def _seeds(name: str, method: Any, seeds: Sequence[Any]) -> Sequence[Any]:
    """Return the seeds of a method: its own, which must be among those of the spec, or all."""
    if not isinstance(method, dict) or 'seeds' not in method:
        return seeds
    own = _list(name, method, 'seeds')
    for seed in own:
        if seed not in seeds:
            raise UnknownName(f"seed of a method in '{name}'", str(seed), map(str, seeds))
    return own


def _list(name: str, values: Mapping[str, Any], key: str) -> Sequence[Any]:
    found = values.get(key)
    if not isinstance(found, list) or not found:
        raise InvalidConfig(f"spec '{name}' needs a list '{key}' with at least one entry")
    return found


def _mapping(name: str, key: str, value: Any) -> dict[str, Any]:
    """Return a part of a spec that has keys of its own; empty if it is not there."""
    if value is not None and not isinstance(value, dict):
        raise InvalidConfig(f"spec '{name}': '{key}' must be keys and values, got {value}")
    return {str(k): v for k, v in (value or {}).items()}


def _cell(spec: str, values: Mapping[str, Any], suite: Any, method: Any, seed: Any) -> Cell:
    if not isinstance(suite, str):
        raise InvalidConfig(f"spec '{spec}': a suite is a name or a YAML file, got {suite}")
    entry = {'learner': method} if isinstance(method, str) else method
    if not isinstance(entry, dict) or 'learner' not in entry:
        raise InvalidConfig(f"spec '{spec}': a method is a name or has a 'learner', got {method}")
    for key in map(str, entry):
        if key not in (known := ('label', 'learner', 'seeds', 'set', 'per_suite', *_OPTIONS)):
            raise UnknownName(f"key of a method in '{spec}'", key, known)
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise InvalidConfig(f"spec '{spec}': a seed is a whole number from 0 on, got {seed}")
    own = _mapping(spec, 'per_suite', entry.get('per_suite')).get(suite)
    parts = {'set': values.get('set'), 'set of a method': entry.get('set'), 'per_suite': own}
    settings = {k: v for key, part in parts.items() for k, v in _mapping(spec, key, part).items()}
    learner = str(entry['learner'])
    return Cell(
        suite=suite,
        label=str(entry.get('label', learner)),
        learner=learner,
        seed=seed,
        options={k: str({**values, **entry}[k]) for k in _OPTIONS if k in {**values, **entry}},
        settings=_text(settings),
        source=SOURCE_LABEL if learner == 'pg-ella' else None,
    )


def _text(settings: Mapping[str, Any]) -> dict[str, str]:
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in settings.items()
    }
