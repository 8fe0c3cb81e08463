"""The matrix S of a run: how much each task takes of each column, kept beside its summary."""

from dataclasses import dataclass
import json
from pathlib import Path

import numpy as np

from lpgftw_ros.errors import StateMismatch
from lpgftw_ros.experiments.explain import contributions
from lpgftw_ros.experiments.run_files import BadRunFolder
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.runs.knowledge_files import load_knowledge

FILE = 'coefficients.json'


@dataclass(frozen=True, slots=True)
class Coefficients:
    """What each task takes of each column, scaled by the column's norm."""

    tasks: tuple[str, ...]
    values: Array
    """Shape (tasks, k)."""


def read_coefficients(run: Path) -> Coefficients | None:
    """Return S from the checkpoints, else from the file of an archived run, else None."""
    if (run / 'checkpoints').is_dir():
        try:
            knowledge = load_knowledge(run)
        except StateMismatch:
            return None
        return Coefficients(tuple(knowledge.tasks), contributions(knowledge))
    if not (run / FILE).is_file():
        return None
    try:
        content = json.loads((run / FILE).read_text(encoding='utf-8'))
        values = np.array(content['values'], dtype=float)
        return Coefficients(tuple(content['tasks']), values.reshape(len(content['tasks']), -1))
    except (ValueError, KeyError, TypeError) as error:
        raise BadRunFolder(f"cannot read '{run / FILE}': {error!r}") from error


def write_coefficients(folder: Path, coefficients: Coefficients) -> None:
    """Write S beside a summary."""
    content = {'tasks': coefficients.tasks, 'values': np.round(coefficients.values, 6).tolist()}
    (folder / FILE).write_text(json.dumps(content) + '\n', encoding='utf-8')
