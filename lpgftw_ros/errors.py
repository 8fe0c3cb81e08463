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
