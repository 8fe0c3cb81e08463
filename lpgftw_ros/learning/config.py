"""Settings as frozen dataclasses that check themselves.

Every field carries its help text, range and choices as metadata. Command-line options, YAML keys
and ROS parameters are declared from it, so they cannot drift apart.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, Field, field, fields
import math
from typing import Any, TypeVar

from lpgftw_ros.errors import InvalidConfig, UnknownName

Scalar = bool | int | float | str
C = TypeVar('C')


def setting(
    default: Scalar,
    help: str,
    *,
    min: float | None = None,
    max: float | None = None,
    choices: tuple[str, ...] | None = None,
    items: 'Items | None' = None,
) -> Any:
    """Declare one setting; both ends of its range are allowed values.

    A list is held as a text; `items` says how it is written, so that ROS can have an array.
    """
    metadata = {'help': help, 'min': min, 'max': max, 'choices': choices, 'items': items}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Items:
    """How a list is written as a text."""

    kind: type[int] | type[float] | type[str]
    separator: str

    def read(self, text: str) -> list[Any]:
        """Return the members; raises `ValueError` for one of another kind."""
        parts = text.split(self.separator.strip() or None)
        return [self.kind(part.strip()) for part in parts if part.strip()]

    def write(self, members: Iterable[Any]) -> str:
        """Return the text of these members; empty ones are left out."""
        return self.separator.join(str(one) for one in members if str(one).strip())


def check_settings(config: object) -> None:
    """Raise `InvalidConfig` for the first field that breaks its type, range or choices."""
    for item in fields(config):  # type: ignore[arg-type]
        value = typed(item, getattr(config, item.name))
        object.__setattr__(config, item.name, value)
        low, high, choices = (item.metadata.get(key) for key in ('min', 'max', 'choices'))
        if choices is not None and value not in choices:
            raise InvalidConfig(f"{item.name} must be one of {', '.join(choices)}, got '{value}'")
        if low is not None and value < low:
            raise InvalidConfig(f'{item.name} must be at least {low:g}, got {value:g}')
        if high is not None and value > high:
            raise InvalidConfig(f'{item.name} must be at most {high:g}, got {value:g}')


def typed(item: Field[Any], value: Any) -> Scalar:
    """Return the value with the type of the field's default; text is read as that type."""
    wanted: type[Any] = type(item.default)
    try:
        if wanted is bool and str(value).lower() in _WORDS:
            return _WORDS[str(value).lower()]
        if wanted is str:
            if isinstance(value, str):
                return value
        elif wanted is not bool and not isinstance(value, bool):
            number = wanted(value)
            if math.isfinite(number) and (isinstance(value, str) or number == value):
                return number  # type: ignore[no-any-return]
    except (TypeError, ValueError, OverflowError):
        pass
    raise InvalidConfig(f'{item.name} must be {_KIND[wanted]}, got {value!r}')


_WORDS = {'true': True, 'false': False}
_KIND = {bool: 'true or false', int: 'a whole number', float: 'a finite number', str: 'a text'}


def configure(config_type: type[C], values: Mapping[str, Any], kind: str = 'setting') -> C:
    """Build a configuration from overrides; text values are read as the field's type.

    `kind` says in the error what an unknown name should have been.
    """
    known = [item.name for item in fields(config_type)]  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            raise UnknownName(kind, name, known)
    return config_type(**values)


BASE_LEARNERS = {
    'npg': 'steps:Npg',
    'reinforce': 'steps:Reinforce',
    'trpo': 'trpo:Trpo',
    'agreed': 'agreed:Agreed',
}
"""Name of each base learner: its module in this package and its class."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingConfig:
    """What all learners share: how one iteration of one task learns."""

    step: str = setting(
        'npg',
        'base learner: natural gradient at a fixed KL, plain REINFORCE, a line search, or as far '
        'as the halves of a batch agree',
        choices=tuple(BASE_LEARNERS),
    )
    max_kl: float = setting(0.005, 'KL divergence allowed per step (delta)', min=1e-9, max=10.0)
    learning_rate: float = setting(
        0.01, 'factor on the gradient of a reinforce step', min=1e-9, max=1e3
    )
    gamma: float = setting(0.995, 'discount per time step', min=0.0, max=1.0)
    gae_lambda: float = setting(0.97, 'decay of the advantage estimator', min=0.0, max=1.0)
    model_gae_lambda: float = setting(
        0.98, 'decay of the advantage estimator for local models', min=0.0, max=1.0
    )
    bootstrap_timeouts: bool = setting(
        False, 'value the state after a time limit instead of counting it as zero'
    )
    cg_iterations: int = setting(10, 'conjugate gradient iterations per step', min=1, max=1000)
    cg_damping: float = setting(1e-4, 'added to the Fisher diagonal in a step', min=0.0, max=1.0)
    relative_damping: float = setting(
        0.0, 'added to it: this share of the curvature along the gradient', min=0.0, max=10.0
    )
    fisher_floor: float = setting(
        1e-3, 'smallest eigenvalue of the Fisher matrix in a local model', min=1e-9, max=1.0
    )
    value_epochs: int = setting(2, 'passes over the batch per value fit', min=1, max=1000)
    value_learning_rate: float = setting(1e-3, 'Adam step of the value fit', min=1e-7, max=1.0)
    value_scaling: bool = setting(False, 'fit values on standardised inputs and returns')
    initial_log_std: float = setting(
        0.0, 'log sigma a task starts with; 0: sigma of one', min=-3.0, max=3.0
    )
    normalise: bool = setting(
        False,
        'learn from observations with mean 0 and deviation 1, by the running moments of the '
        'first task',
    )

    def __post_init__(self) -> None:
        """Reject values outside their range."""
        check_settings(self)
