"""Where the package and its data files are: in a checkout, or in an installation."""

from collections.abc import Iterator
import os
from pathlib import Path
import sys

from lpgftw_ros.errors import LpgftwError


def _share_folders() -> Iterator[Path]:
    """Yield the folders that may hold data, the checkout first."""
    yield Path(__file__).resolve().parent.parent
    for parent in Path(__file__).resolve().parents:  # pip install --user, --target, --prefix
        yield parent / 'share' / 'lpgftw_ros'
    for prefix in (sys.prefix, *os.environ.get('AMENT_PREFIX_PATH', '').split(os.pathsep)):
        if prefix:
            yield Path(prefix) / 'share' / 'lpgftw_ros'


def source_root() -> str:
    """Return the folder this package is imported from."""
    return str(Path(__file__).resolve().parents[1])


def data_folder(name: str) -> Path:
    """Return a data folder of the package, for example 'sim/suites' or 'config'."""
    tried = []
    for share in _share_folders():
        folder = share / name
        if folder.is_dir():
            return folder
        tried.append(str(folder))
    raise LpgftwError(f"data folder '{name}' is not installed (looked in: {', '.join(tried)})")
