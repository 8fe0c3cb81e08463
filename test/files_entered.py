"""Print which files of the package a call enters: how far a reader has to walk to follow it.

`python test/files_entered.py` traces one `improve` of LPG-FTW and one checkpoint of a run.
"""

from collections.abc import Callable
from pathlib import Path
import sys
import tempfile
from types import FrameType

import lpgftw_ros  # pins the arithmetic, so it comes before numpy

# isort: split

import numpy as np

from lpgftw_ros.learning import Batch, Learner, make_learner, PolicySpec
from lpgftw_ros.runs.checkpoints import CheckpointStore

PACKAGE = Path(lpgftw_ros.__file__).parent


def files_entered(call: Callable[[], object]) -> list[str]:
    """Return the files of the package whose functions run during a call, in order of entry."""
    found: dict[str, None] = {}

    def watch(frame: FrameType, event: str, argument: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == 'call' and path.is_relative_to(PACKAGE):
            found.setdefault(str(path.relative_to(PACKAGE)))

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(before)
    return list(found)


def learner_with_a_batch() -> tuple[Learner, Batch]:
    """Return LPG-FTW in its second task, and trajectories of it."""
    learner = make_learner('lpg-ftw', PolicySpec(obs_dim=3, act_dim=2, hidden=(5, 4)))
    for task in ('first', 'second'):
        learner.start_task(task, seed=1)
        batch = random_batch(task)
        if task == 'first':
            learner.improve(batch)
            learner.fit_values()
            learner.finish_task(batch)
    return learner, batch


def random_batch(task: str, n: int = 4, horizon: int = 10) -> Batch:
    """Return trajectories of noise."""
    rng, no = np.random.default_rng(0), np.zeros(n, dtype=bool)
    return Batch(
        task=task,
        observations=rng.standard_normal((n * horizon, 3)),
        actions=rng.standard_normal((n * horizon, 2)),
        rewards=rng.standard_normal(n * horizon),
        lengths=np.full(n, horizon),
        terminated=no,
        truncated=~no,
        success=no,
        failed=no,
        final_observations=rng.standard_normal((n, 3)),
    )


def files_of_improve() -> list[str]:
    """Return the files one policy step enters."""
    learner, batch = learner_with_a_batch()
    return files_entered(lambda: learner.improve(batch))


def files_of_checkpoint(folder: Path) -> list[str]:
    """Return the files a checkpoint of both layers enters."""
    learner, batch = learner_with_a_batch()
    learner.improve(batch)
    learner.fit_values()
    store = CheckpointStore(folder)

    def save() -> None:
        store.save_base(learner)
        store.save_iteration(learner, {})

    return files_entered(save)


if __name__ == '__main__':
    with tempfile.TemporaryDirectory() as folder:
        for what, files in (
            ('improve', files_of_improve()),
            ('checkpoint', files_of_checkpoint(Path(folder))),
        ):
            print(f'{what}: {len(files)} files: {", ".join(files)}')
