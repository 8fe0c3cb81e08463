"""Everything that can go wrong, as one tree under `LpgftwError`."""

from collections.abc import Iterable
import difflib


class LpgftwError(Exception):
    """Base of all errors a user can cause or meet; the command line prints it as one line."""


class InvalidConfig(LpgftwError):
    """A setting has a value that is not allowed."""


class UnknownName(LpgftwError):
    """A name that does not exist was asked for."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = list(known)
        close = difflib.get_close_matches(name, names, n=1)
        hint = f"; did you mean '{close[0]}'?" if close else ''
        super().__init__(f"no {kind} '{name}'{hint} (known: {', '.join(names)})")
        self.kind, self.name, self.known = kind, name, tuple(names)


class NonFinite(LpgftwError):
    """A number that must be finite is not; nothing was changed."""


class WrongShape(LpgftwError):
    """An array has another shape than its place needs; nothing was changed."""


class LearnerMisuse(LpgftwError):
    """A learner was asked for something its present phase does not allow."""


class StateMismatch(LpgftwError):
    """A saved state does not fit: other shapes, other version or damaged; nothing was changed."""


class SimulationFailed(LpgftwError):
    """The simulator could not produce a single usable trajectory."""


class MissingExtra(LpgftwError):
    """A package is not installed that only some commands need."""

    def __init__(self, module: str) -> None:
        extra = EXTRAS[module]
        built = '; make setup, or a sourced workspace, has it all' if extra == 'ros' else ''
        super().__init__(f"{module} is not installed: pip install 'lpgftw_ros[{extra}]'{built}")


EXTRAS = {
    'metaworld': 'metaworld',
    'torch': 'torch',
    'tensorboard': 'torch',
    'viser': 'dashboard',
    'mink': 'deploy',
    'daqp': 'deploy',
    'onnx': 'deploy',
    'ray': 'cluster',
    'trimesh': 'dashboard',
    'envpool': 'dev',
    **dict.fromkeys(
        (
            *('rclpy', 'lpgftw_interfaces', 'lifecycle_msgs', 'builtin_interfaces', 'std_srvs'),
            *('rcl_interfaces', 'std_msgs', 'sensor_msgs', 'geometry_msgs', 'diagnostic_msgs'),
            *('trajectory_msgs', 'action_msgs', 'ament_index_python', 'tf2_msgs'),
        ),
        'ros',
    ),
}
"""Modules of optional packages and the extra that brings them."""


def missing_extra(error: ImportError) -> MissingExtra | None:
    """Return the error that names the extra, if it is one that is missing."""
    module = (error.name or '').split('.')[0]
    return MissingExtra(module) if module in EXTRAS else None
