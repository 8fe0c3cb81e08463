"""Where the package and its data files are, in a checkout or an installation; reading YAML."""

from collections.abc import Iterator
import math
import os
from pathlib import Path
import sys
from typing import Any

import yaml

from lpgftw_ros.errors import LpgftwError

MOST_VALUES = 100_000
"""Values in a YAML file, each alias counted as what it stands for."""
DEEPEST = 50
"""Lists and mappings in one another in a YAML file: deeper ones break the parser."""
_Loader = getattr(yaml, 'CSafeLoader', yaml.SafeLoader)


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


def read_yaml(path: Path) -> Any:
    """Read a YAML file, a user's own too; a few lines of aliases can stand for too much."""
    text, depth = path.read_text(encoding='utf-8'), 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise yaml.YAMLError(f'more than {DEEPEST} levels')
    if _extent(yaml.compose(text, Loader=_Loader), {}) > MOST_VALUES:
        raise yaml.YAMLError(f'more than {MOST_VALUES} values, aliases counted')
    try:
        return yaml.load(text, Loader=_Loader)
    except ValueError as error:  # numbers of thousands of digits
        raise yaml.YAMLError(str(error)) from None


def _extent(node: yaml.Node | None, known: dict[int, float]) -> float:
    """Return how many values a part of a file stands for; endless if it contains itself.

    A key that stands there twice is an error: the second one would win, and nobody would know.
    """
    if not isinstance(node, yaml.CollectionNode):
        return 1
    if id(node) not in known:
        known[id(node)] = math.inf
        parts = list(node.value)
        if isinstance(node, yaml.MappingNode):
            keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            if twice := next((key for key in keys if keys.count(key) > 1), None):
                raise yaml.YAMLError(f'{twice} stands there twice')
            parts = [part for pair in node.value for part in pair]
        known[id(node)] = 1 + sum(_extent(part, known) for part in parts)
    return known[id(node)]
