"""Small copies of runs to be committed: no checkpoints, metrics compressed."""

import gzip
from pathlib import Path
import shutil

from lpgftw_ros.experiments import diversity
from lpgftw_ros.experiments.coefficients import read_coefficients, write_coefficients
from lpgftw_ros.experiments.run_data import RunData


def archive_run(run: RunData, root: Path) -> Path:
    """Copy what reports read to `root/<suite>/<method>/seed-N`; the same run, the same bytes."""
    folder = root / run.suite / run.label / f'seed-{run.seed}'
    folder.mkdir(parents=True, exist_ok=True)
    if folder.resolve() == run.path.resolve():
        return folder
    for name in ('summary.json', 'config.yaml', diversity.FILE):
        if (run.path / name).is_file():
            shutil.copyfile(run.path / name, folder / name)
    for name in ('metrics.jsonl', 'metrics.jsonl.gz'):
        source = run.path / name
        if source.is_file():
            raw = source.read_bytes()
            packed = raw if name.endswith('.gz') else gzip.compress(raw, 9, mtime=0)
            (folder / 'metrics.jsonl.gz').write_bytes(packed)
            break
    coefficients = read_coefficients(run.path)
    if coefficients is not None and coefficients.values.size:
        write_coefficients(folder, coefficients)
    return folder
