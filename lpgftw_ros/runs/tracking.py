"""Optional experiment trackers: TensorBoard, Weights & Biases, MLflow.

A tracker is a function that takes named numbers and a step. Tags are `measure/task`, so that the
tasks of one measure stand together, and `stage return/tune` for the scores of a visit.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, ExitStack
import importlib
import os
from pathlib import Path
from typing import Any

from lpgftw_ros.errors import LpgftwError, UnknownName
from lpgftw_ros.runs.config import RunConfig

Log = Callable[[Mapping[str, float], int], None]
"""Log named numbers at a step."""
OnRow = Callable[[dict[str, Any]], None]
MEASURES = {'return_mean': 'return', 'kl': 'KL'}
"""Entries of a metrics row whose tags have another name."""
_PLACE = ('kind', 'visit', 'task', 'iteration')
"""Fields that locate a row; every other number of it is a curve."""


def tracker_names(text: str) -> tuple[str, ...]:
    """Return the trackers a text names, separated by commas; unknown ones are an error."""
    names = tuple(dict.fromkeys(word.strip() for word in text.split(',') if word.strip()))
    for name in names:
        if name not in _OPEN:
            raise UnknownName('tracker', name, tuple(_OPEN))
    return names


@contextmanager
def tracked(names: Sequence[str], folder: Path, config: RunConfig) -> Iterator[OnRow]:
    """Return the function that takes every row of a run; the first one opens the trackers."""
    for name in names:
        _import(name)  # what is missing is said before anything is learned
    with ExitStack() as stack:
        logs: dict[str, Log] = {}
        visits: dict[str, list[int]] = {}

        def write(row: dict[str, Any]) -> None:
            values, step = numbers(row, visits)
            for name in names if values else ():
                if name not in logs:
                    logs[name] = stack.enter_context(_OPEN[name](folder, config))
                logs[name](values, step)

        yield write


def numbers(row: Mapping[str, Any], visits: dict[str, list[int]]) -> tuple[dict[str, float], int]:
    """Return the tags and numbers of a row, and its step; `visits` remembers revisits."""
    seen = visits.setdefault(row['task'], [])
    if row['visit'] not in seen:
        seen.append(row['visit'])
    again = seen.index(row['visit'])
    task = row['task'] + (f' again {again}' if again else '')
    if row['kind'] == 'score':
        stage = row['stage']
        return {
            f'stage return/{stage}': row['return'],
            f'stage success/{stage}': row['success'],
            f'{stage}/{task}': row['return'],
        }, int(row['visit'])
    if row['kind'] != 'iteration':
        return {}, 0
    found = {
        f'{MEASURES.get(name, name)}/{task}': value
        for name, value in row.items()
        if name not in _PLACE and isinstance(value, int | float)
    }
    return found, int(row['iteration'])


@contextmanager
def _tensorboard(folder: Path, config: RunConfig) -> Iterator[Log]:
    writer = _import('tensorboard').SummaryWriter(str(folder / 'tensorboard'))

    def log(values: Mapping[str, float], step: int) -> None:
        for tag, value in values.items():
            writer.add_scalar(tag, value, step)

    try:
        yield log
    finally:
        writer.close()


@contextmanager
def _wandb(folder: Path, config: RunConfig) -> Iterator[Log]:
    """Log to W&B; offline (`wandb sync` sends it later) unless WANDB_MODE says otherwise."""
    wandb = _import('wandb')
    folder.mkdir(parents=True, exist_ok=True)
    run = wandb.init(
        project=os.environ.get('WANDB_PROJECT', 'lpgftw'),
        name=folder.name,
        dir=str(folder),
        config=config.to_dict(),
        mode=os.environ.get('WANDB_MODE', 'offline'),
    )
    run.define_metric('*', step_metric='step')

    def log(values: Mapping[str, float], step: int) -> None:
        run.log({**values, 'step': step})

    try:
        yield log
    finally:
        run.finish()


@contextmanager
def _mlflow(folder: Path, config: RunConfig) -> Iterator[Log]:
    """Log to MLflow: to MLFLOW_TRACKING_URI if it is set, else into the run folder."""
    mlflow = _import('mlflow')
    if not os.environ.get('MLFLOW_TRACKING_URI'):
        os.environ.setdefault('MLFLOW_ALLOW_FILE_STORE', 'true')  # log to files
        mlflow.set_tracking_uri((folder.absolute() / 'mlflow').as_uri())
    mlflow.set_experiment('lpgftw')
    with mlflow.start_run(run_name=folder.name):
        mlflow.log_params({key: str(value) for key, value in config.settings().items()})
        yield lambda values, step: mlflow.log_metrics(dict(values), step=step)


_OPEN = {'tensorboard': _tensorboard, 'wandb': _wandb, 'mlflow': _mlflow}
TRACKERS = tuple(_OPEN)


_MODULES = {
    'tensorboard': ('torch.utils.tensorboard', 'tensorboard'),
    'wandb': ('wandb', 'wandb'),
    'mlflow': ('mlflow', 'mlflow-skinny'),
}
"""Tracker -> module it speaks to, and the package that has it."""


def _import(name: str) -> Any:
    module, package = _MODULES[name]
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise LpgftwError(f'the tracker {name} needs {package}: pip install {package}') from error
