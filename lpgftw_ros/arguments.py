"""Types of command-line arguments; a wrong value is refused before anything starts."""

from argparse import ArgumentTypeError
from collections.abc import Callable
import math
from pathlib import Path

LARGEST_SEED = 2**31 - 1
LARGEST_DOMAIN = 232  # of ROS; higher ones have no ports
MOST_WORKERS = 1024


def whole(low: int, high: int | None = None) -> Callable[[str], int]:
    """Return the type of whole numbers from `low` to `high`, both allowed."""

    def read(word: str) -> int:
        try:
            number = int(word)
        except ValueError:
            raise ArgumentTypeError(f"must be a whole number, got '{word}'") from None
        _require_range(number, low, high)
        return number

    return read


def real(low: float, high: float) -> Callable[[str], float]:
    """Return the type of numbers from `low` to `high`, both allowed."""

    def read(word: str) -> float:
        try:
            number = float(word)
        except ValueError:
            raise ArgumentTypeError(f"must be a number, got '{word}'") from None
        if not low <= number <= high:
            raise ArgumentTypeError(f'must be from {low:g} to {high:g}, got {word}')
        return number

    return read


def positive(word: str) -> float:
    """Read a finite number above zero."""
    try:
        number = float(word)
    except ValueError:
        raise ArgumentTypeError(f"must be a number, got '{word}'") from None
    if not 0.0 < number < math.inf:
        raise ArgumentTypeError(f'must be a finite number above 0, got {word}')
    return number


def _require_range(number: int, low: int, high: int | None) -> None:
    if number < low:
        raise ArgumentTypeError(f'must be at least {low}, got {number}')
    if high is not None and number > high:
        raise ArgumentTypeError(f'must be at most {high}, got {number}')


seed = whole(0, LARGEST_SEED)
count = whole(1)
threads = whole(1, 64)
workers = whole(0, MOST_WORKERS)
domain = whole(0, LARGEST_DOMAIN)


def text(word: str) -> str:
    """Read a non-empty string."""
    if not word.strip():
        raise ArgumentTypeError('must not be empty')
    return word


def names(word: str) -> tuple[str, ...]:
    """Read names separated by commas."""
    return tuple(text(name).strip() for name in word.split(','))


def rates(word: str) -> tuple[float, ...]:
    """Read numbers above zero separated by commas."""
    return tuple(positive(part) for part in word.split(','))


def path(word: str) -> Path:
    """Read a path; it need not exist."""
    return Path(text(word)).expanduser()


def _existing(what: str, is_there: Callable[[Path], bool]) -> Callable[[str], Path]:
    def read(word: str) -> Path:
        found = path(word)
        if not is_there(found):
            raise ArgumentTypeError(f"there is no {what} '{found}'")
        return found

    return read


folder = _existing('folder', Path.is_dir)
file = _existing('file', Path.is_file)
run_or_file = _existing('run folder or file', Path.exists)


def new_folder(word: str) -> Path:
    """Read the path of a folder that exists or can be made."""
    found = path(word)
    for part in (found, *found.parents):
        if part.exists() and not part.is_dir():
            raise ArgumentTypeError(f"'{part}' is a file, expected a folder")
    return found


def new_file(word: str) -> Path:
    """Read the path of a file to write; its folder can be made."""
    found = path(word)
    if found.is_dir():
        raise ArgumentTypeError(f"'{found}' is a folder, expected a file")
    new_folder(str(found.parent))
    return found


def video(word: str) -> Path:
    """Read the path of a video to write, or of a folder for several."""
    found = path(word)
    if found.suffix not in ('', '.mp4'):
        raise ArgumentTypeError(f"must end in .mp4 or be a folder, got '{word}'")
    return new_file(word) if found.suffix else new_folder(word)


def picture(word: str) -> Path:
    """Read the path of a picture to write."""
    found = new_file(word)
    if found.suffix != '.png':
        raise ArgumentTypeError(f"must end in .png, got '{word}'")
    return found
