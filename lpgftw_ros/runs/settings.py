"""Every option and setting of a run, declared once.

Name, type, default, range and help are declared here and nowhere else. The command line, node
parameters, launch arguments, `config/lifelong.yaml`, `docs/settings.md` and
`lpgftw explain --settings` are made from these fields. Quick to import: nodes read it too.
"""

from dataclasses import dataclass, Field, field, fields
from typing import Any, Literal

from lpgftw_ros.learning.config import check_settings, Items, setting

AS_PRESET = -1
"""The number that means: as the preset of the suite says."""
KEY_VALUES: Literal['key_values'] = 'key_values'
"""How `settings` is read: KEY=VALUE texts."""
PRESETS = ('published', 'paper')
"""Whose equations: those of the authors' code, which gave the published numbers, or the text's."""


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
    matrix: bool = setting(False, 'after each task, evaluate all tasks met so far')
    threads: int = setting(1, 'BLAS and torch threads of the learner', min=1, max=64)

    def __post_init__(self) -> None:
        """Reject values outside their range."""
        check_settings(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class ShapeConfig:
    """The shape of the policies."""

    hidden: str = setting('', 'widths of the policy: none (linear) or two', items=Items(int, ','))


Reads = Literal['text', 'folder', 'file', 'new_folder', 'key_values']


def option(
    default: bool | int | str, help: str, *, reads: Reads = 'text', alone: str = '', **limits: Any
) -> Any:
    """Declare an option; `reads` says what the command line takes for a text.

    With `alone` the command line may name the option without a value, which then is that one.
    """
    declared = setting(default, help, **limits)
    metadata = {**declared.metadata, 'reads': reads, 'alone': alone}
    return field(default=default, metadata=metadata)


def of_the_loop(name: str) -> Any:
    """Declare an option for a number of `LoopConfig`; by default the preset decides."""
    item = next(item for item in fields(LoopConfig) if item.name == name)
    limits = {'min': AS_PRESET, 'max': item.metadata['max']}
    declared = setting(AS_PRESET, f'{item.metadata["help"]}; -1: as the preset says', **limits)
    metadata = {**declared.metadata, 'reads': 'text', 'loop': True}
    return field(default=AS_PRESET, metadata={**metadata, 'least': item.metadata['min']})


@dataclass(frozen=True, kw_only=True)
class SuiteOption:
    """Which tasks."""

    suite: str = option('demo', 'suite name or YAML file (`lpgftw tasks` lists the suites)')


@dataclass(frozen=True, kw_only=True)
class SamplingOptions(SuiteOption):
    """How tasks are simulated; has no effect on the numbers."""

    workers: int = setting(0, 'simulation workers; 0: one per core', min=0, max=1024)
    step_timeout: float = setting(
        60.0,
        'seconds a control step may take before its worker is replaced and the rollout sampled '
        'again; 0: no limit',
        min=0.0,
        max=86_400.0,
    )


@dataclass(frozen=True, kw_only=True)
class MethodOptions:
    """How a task is learned, and where the result is kept."""

    learner: str = option('lpg-ftw', 'method: {learners}')
    seed: int = of_the_loop('seed')
    iterations: int = of_the_loop('iterations')
    trajectories: int = of_the_loop('trajectories')
    preset: str = option(
        'published', "'published' follows the authors' code, 'paper' the text of the paper"
    )
    settings: str = option(
        '',
        'any setting of the run or the learner: KEY=VALUE, several separated by semicolons',
        reads=KEY_VALUES,
    )
    source: str = option('', 'finished STL run that pg-ella starts from', reads='folder')
    knowledge: str = option(
        '', 'knowledge file or run folder of another lifetime to start from', reads='file'
    )
    out: str = option('', 'run folder; empty: runs/<suite>-<learner>-<seed>', reads='new_folder')
    resume: bool = option(False, 'continue the run in `out`')
    track: str = option('', 'also log to tensorboard, wandb or mlflow', items=Items(str, ','))


@dataclass(frozen=True, kw_only=True)
class LearningOptions(SuiteOption, MethodOptions):
    """What is learned: the options of a run that decide its numbers."""

    tasks: str = option('', 'how many tasks, or their names; empty: all', items=Items(str, ','))


@dataclass(frozen=True, kw_only=True)
class TrainOptions(SamplingOptions, LearningOptions):
    """The options of a run, in process or in the graph."""


@dataclass(frozen=True, kw_only=True)
class ClusterOption:
    """Where tasks are simulated; decides no number."""

    ray: str = option(
        '',
        'simulate on the Ray cluster at this address (HOST:PORT or auto), one CPU per worker; '
        'without an address on one of this machine alone',
        alone='local',
    )


def again(kind: type, name: str, default: bool | int | float | str) -> Any:
    """Declare an option of another class again, with another default."""
    item = next(item for item in fields(kind) if item.name == name)
    return field(default=default, metadata=item.metadata)


def help_text(item: 'Field[Any]') -> str:
    """Return the help of a field; `{learners}` stands for the names of all methods."""
    text = str(item.metadata.get('help', ''))
    if '{learners}' in text:
        from lpgftw_ros.runs.config import learner_names  # slow to import, not always needed

        text = text.replace('{learners}', ', '.join(learner_names()))
    return text


def typed_help(item: 'Field[Any]') -> str:
    """Return the help of a field whose value is typed as a text; it says how lists are written."""
    items = item.metadata.get('items')
    how = {None: '', ' ': '; separated by spaces', ',': '; separated by commas'}
    return help_text(item) + how[items.separator if items else None]


def described(kind: type) -> list[tuple[str, str, str, str, str]]:
    """Return name, type, default, range and help of every field, as texts."""
    rows = []
    for item in fields(kind):
        default = item.default
        kind_name = {bool: 'flag', int: 'integer', float: 'number'}.get(type(default), 'text')
        kind_name = 'list' if item.metadata.get('items') else kind_name
        rows.append((item.name, kind_name, _shown(default), _span(item), help_text(item)))
    return rows


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'{value:g}' if isinstance(value, float) else str(value)


def _span(item: 'Field[Any]') -> str:
    low, high, choices = (item.metadata.get(key) for key in ('min', 'max', 'choices'))
    if choices:
        return ', '.join(choice or "''" for choice in choices)
    if low is None and high is None:
        return ''
    if high is None:
        return f'from {_shown(low)}'
    return f'{_shown(low)} to {_shown(high)}'
