"""The files of a run folder, read and checked but not yet interpreted."""

from collections.abc import Iterable, Mapping
import gzip
import json
from pathlib import Path
from typing import Any, Final

import yaml

from lpgftw_ros.errors import LpgftwError

FORMAT: Final = 1


class MissingRun(LpgftwError):
    """No run folder where one was expected."""


class BadRunFolder(LpgftwError):
    """A run folder whose files cannot be read as the format says."""


def find_runs(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return all run folders at or below the given paths, sorted, each once."""
    found: set[Path] = set()
    for path in paths:
        if not path.is_dir():
            raise MissingRun(f"no folder '{path}'; expected a run folder or one that holds some")
        below = {file.parent for file in path.rglob('summary.json')}
        if not below:
            raise MissingRun(f"no run below '{path}': no summary.json found there")
        found |= below
    return tuple(sorted(found))


def read_summary(path: Path) -> dict[str, Any]:
    """Return the summary of a run folder, its format number checked."""
    file = path / 'summary.json'
    if not file.is_file():
        raise MissingRun(f"'{path}' is not a run folder: it has no summary.json")
    try:
        summary = json.loads(file.read_text(encoding='utf-8'))
    except (ValueError, OSError) as error:
        raise BadRunFolder(f"cannot read '{file}': {error}") from error
    version = summary.get('format') if isinstance(summary, dict) else None
    if version != FORMAT:
        raise BadRunFolder(f"'{file}' has format {version}, this version reads format {FORMAT}")
    return dict(summary)


def read_config(path: Path) -> Mapping[str, Any]:
    """Return the configuration of a run folder, empty if it has none."""
    file = path / 'config.yaml'
    if not file.is_file():
        return {}
    try:
        config = yaml.safe_load(file.read_text(encoding='utf-8'))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadRunFolder(f"cannot read '{file}': {error}") from error
    return config if isinstance(config, dict) else {}


def metric_lines(path: Path) -> list[str]:
    """Return the lines of the metrics, plain or compressed; none if there are none yet."""
    plain, packed = path / 'metrics.jsonl', path / 'metrics.jsonl.gz'
    try:
        if plain.is_file():
            return plain.read_text(encoding='utf-8').splitlines()
        if packed.is_file():
            return gzip.decompress(packed.read_bytes()).decode('utf-8').splitlines()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise BadRunFolder(f"cannot read the metrics of '{path}': {error}") from error
    return []
