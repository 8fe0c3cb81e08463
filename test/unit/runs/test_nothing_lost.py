"""Failed writes, damaged, swapped and edited files: one clear line, and nothing overwritten."""

from collections.abc import Callable
import errno
from pathlib import Path
import shutil
from typing import Any

import numpy as np
import pytest
import yaml

from lpgftw_ros.domains.sampler import Sampler
from lpgftw_ros.errors import InvalidConfig, LpgftwError, StateMismatch
from lpgftw_ros.runs import storage
from lpgftw_ros.runs.checkpoints import load_knowledge
from lpgftw_ros.runs.config import RunConfig
from lpgftw_ros.runs.driver import drive, policy_spec
from lpgftw_ros.runs.folder import read_config
from lpgftw_ros.runs.options import RunOptions
from lpgftw_ros.runs.session import Session
from lpgftw_ros.runs.storage import CannotWrite, read_arrays, write_arrays

from .conftest import metrics

Make, Train = Callable[..., RunConfig], Callable[..., Path]


class Reached(Exception):
    """The run has come as far as the test wants it."""


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob('*') if p.is_file()}


@pytest.fixture
def cut(tiny_config: Make, train: Train, tmp_path: Path) -> Path:
    """A run of three tasks that was cut in its second one."""

    def look(session: Session) -> None:
        if len(session.lifelong.visits) > 1 and session.lifelong.visits[1].finished_iterations:
            raise Reached

    out = tmp_path / 'cut'
    with pytest.raises(Reached):
        train(tiny_config(tasks='3'), out, on_step=look)
    return out


def refused(train: Train, out: Path, error: type[LpgftwError], match: str) -> None:
    """Resume a run and see it refused, with one line and every file as it was."""
    before = files(out)
    with pytest.raises(error, match=match) as caught:
        train(read_config(out), out, resume=True)
    assert '\n' not in str(caught.value)
    assert files(out) == before


def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(handle: int) -> None:
        raise OSError(errno.ENOSPC, 'No space left on device')

    monkeypatch.setattr(storage.os, 'fsync', fsync)


@pytest.mark.parametrize('learner', ['lpg-ftw', 'ewc'])
def test_a_failed_write_does_not_lose_a_parked_policy(
    tiny_config: Make,
    train: Train,
    sampler: Sampler,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    learner: str,
) -> None:
    config = tiny_config(learner, tasks='3')
    spec, out = policy_spec(config, sampler), tmp_path / 'run'

    def look(session: Session) -> None:
        if session.learner.running and session.learner.iteration == 2:
            raise Reached

    with Session(config, out, spec=spec) as session:
        with pytest.raises(Reached):
            drive(session, sampler, look)
        session.lifelong.hold()  # as `stop` in the graph does
        with monkeypatch.context() as patch:
            full_disk(patch)
            with pytest.raises(CannotWrite, match='No space left'):
                session.save()
        parked = session.learner.knowledge().policy(config.tasks[0]).theta
        session.save()  # the next command; there is room again
    with Session(config, out, spec=spec, resume=True) as session:
        assert session.learner.phase(config.tasks[0]) == 'parked'
        again = session.learner.knowledge().policy(config.tasks[0]).theta
    np.testing.assert_array_equal(again, parked)
    whole = metrics(train(config, tmp_path / 'whole'))
    assert metrics(train(config, out, resume=True)) == whole


def test_rows_of_a_failed_save_are_written_once(
    tiny_config: Make, sampler: Sampler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows reach the disk, the checkpoint does not; the next save must not repeat them."""
    config = tiny_config(tasks='1')
    with Session(config, tmp_path / 'run', spec=policy_spec(config, sampler)) as session:
        with monkeypatch.context() as patch:
            patch.setattr(session.store, 'save_iteration', _fail)
            with pytest.raises(CannotWrite):
                drive(session, sampler, lambda s: None)
        drive(session, sampler, lambda s: None)
    rows = metrics(tmp_path / 'run')
    assert [row['iteration'] for row in rows] == [0, 1, 2, 3]


def _fail(*args: Any) -> None:
    raise CannotWrite('cannot write: No space left on device')


def test_missing_metrics_are_refused(cut: Path, train: Train) -> None:
    (cut / 'metrics.jsonl').unlink()
    refused(train, cut, StateMismatch, r'metrics\.jsonl is missing, the checkpoint expects \d+')


def test_shortened_metrics_are_refused(cut: Path, train: Train) -> None:
    path = cut / 'metrics.jsonl'
    path.write_bytes(path.read_bytes()[:-10])
    refused(train, cut, StateMismatch, r'metrics\.jsonl has \d+ bytes, the checkpoint expects')


def test_edited_metrics_are_refused(cut: Path, train: Train) -> None:
    path = cut / 'metrics.jsonl'
    path.write_bytes(path.read_bytes().replace(b'"iteration": 1', b'"iteration": 9', 1))
    refused(train, cut, StateMismatch, r'metrics\.jsonl was changed')


def test_lost_checkpoints_do_not_clear_the_metrics(
    tiny_config: Make, cut: Path, train: Train
) -> None:
    for path in (cut / 'checkpoints').iterdir():
        path.unlink()
    with (cut / 'metrics.jsonl').open('ab') as file:
        file.write(b'{"kind": "iteration"}\n' * 3)
    refused(train, cut, StateMismatch, 'goes on for 7 iterations after the checkpoint')


@pytest.mark.parametrize('name', ['notes.txt', 'task-abc.safetensors'])
def test_stray_files_are_refused(cut: Path, train: Train, name: str) -> None:
    (cut / 'checkpoints' / name).write_text('years of work')
    refused(train, cut, StateMismatch, rf'{name} is not a file of this run; move it')


def test_checkpoints_of_another_run_are_refused(
    tiny_config: Make, cut: Path, train: Train, tmp_path: Path
) -> None:
    other = train(tiny_config(tasks='3'), tmp_path / 'other')
    for path in (other / 'checkpoints').iterdir():
        shutil.copy(path, cut / 'checkpoints' / path.name)
    refused(train, cut, StateMismatch, r'belongs to run \w+, this folder is run \w+')


def test_one_knowledge_file_of_another_run_is_refused(
    tiny_config: Make, cut: Path, train: Train, tmp_path: Path
) -> None:
    other = train(tiny_config(tasks='3'), tmp_path / 'other')
    newest = max((other / 'checkpoints').glob('task-*'))
    shutil.copy(newest, cut / 'checkpoints' / 'task-050.safetensors')
    refused(train, cut, StateMismatch, r'task-050\.safetensors belongs to run')


def test_a_checkpoint_of_another_iteration_is_refused(
    tiny_config: Make, train: Train, tmp_path: Path
) -> None:
    kept: list[bytes] = []

    def look(session: Session) -> None:
        path = session.folder.checkpoints / 'iteration.safetensors'
        if path.exists() and not kept:
            kept.append(path.read_bytes())

    out = train(tiny_config(tasks='2'), tmp_path / 'run', on_step=look)
    newest, before = (out / 'checkpoints' / f'iteration{n}.safetensors' for n in ('', '.previous'))
    newest.write_bytes(kept[0])
    refused(train, out, StateMismatch, r'\(save 1\) is older than iteration\.previous')
    before.unlink()
    refused(train, out, StateMismatch, 'iterations after the checkpoint|cannot read')


def test_a_renamed_knowledge_file_is_refused(cut: Path, train: Train) -> None:
    folder = cut / 'checkpoints'
    base = storage.read_info(folder / 'iteration.safetensors')['base']
    newest = folder / f'task-{base:03d}.safetensors'
    arrays, info = read_arrays(newest)
    write_arrays(newest, arrays, {**info, 'number': base + 3})
    refused(train, cut, StateMismatch, f'is task file {base + 3}, renamed')


@pytest.mark.parametrize(
    ('edit', 'named'),
    [
        (lambda c: c['loop'].update(seed=8), r'loop\.seed was 7, is now 8'),
        (lambda c: c['method'].update(gamma=0.9), r'method\.gamma was 0\.995, is now 0\.9'),
        (lambda c: c['tasks'].reverse(), r'tasks was \[.*\], is now'),
        (lambda c: c.update(run='0123456789ab'), 'belongs to run'),
    ],
)
def test_an_edited_configuration_is_refused(
    cut: Path, train: Train, edit: Callable[[dict[str, Any]], None], named: str
) -> None:
    path = cut / 'config.yaml'
    content = yaml.safe_load(path.read_text())
    edit(content)
    path.write_text(yaml.safe_dump(content))
    refused(train, cut, StateMismatch, named)


def test_an_edited_copy_of_the_suite_is_refused(cut: Path, train: Train) -> None:
    path = cut / 'suite' / 'tiny.yaml'
    path.write_text(path.read_text().replace('gravity: 1.2', 'gravity: 1.3'))
    refused(train, cut, StateMismatch, "task 'g-12' was changed in the suite of this run")


def test_a_suite_that_changed_is_named_and_the_copy_still_used(
    tiny_suite: str, tiny_config: Make, cut: Path, train: Train, tmp_path: Path
) -> None:
    whole = metrics(train(tiny_config(tasks='3'), tmp_path / 'whole'))
    Path(tiny_suite).write_text(Path(tiny_suite).read_text().replace('1.2', '1.3'))
    saved = read_config(cut)
    with pytest.raises(InvalidConfig, match="has changed since this run began: task 'g-12'"):
        RunOptions(suite=tiny_suite).continued(saved)
    Path(tiny_suite).unlink()
    assert metrics(train(RunOptions().continued(saved), cut, resume=True)) == whole


def as_format_1(out: Path) -> None:
    """Rewrite the checkpoints of a run as version 1 wrote them."""
    knowledge = load_knowledge(out)
    for path in (out / 'checkpoints').glob('*.safetensors'):
        arrays, info = read_arrays(path)
        for key in ('run', 'decided_by', 'number', 'save'):
            info.pop(key, None)
        if 'base/basis' in arrays:
            basis = arrays['base/basis']
            if 'base/log_std' in arrays:
                arrays['base/theta'] = arrays.pop('base/basis')[:, 0].copy()
            info['tasks'] = list(knowledge.tasks)
            arrays['knowledge/basis'] = basis
            for i, factors in enumerate(knowledge.tasks.values()):
                for name in ('coefficients', 'residual', 'head', 'log_std'):
                    arrays[f'knowledge/{i}/{name}'] = getattr(factors, name)
        if 'metrics' in info:
            info['metrics_size'] = info.pop('metrics')['size']
            info['running'] = None
        write_arrays(path, arrays, info)
        path.write_bytes(path.read_bytes().replace(b'"format":"2"', b'"format":"1"'))
    config = yaml.safe_load((out / 'config.yaml').read_text())
    del config['run']
    (out / 'config.yaml').write_text(yaml.safe_dump({**config, 'format': 1}))
    shutil.rmtree(out / 'suite')


@pytest.mark.parametrize('learner', ['lpg-ftw', 'ewc', 'stl'])
def test_a_run_of_format_1_can_be_read_and_resumed(
    tiny_config: Make, train: Train, tmp_path: Path, learner: str
) -> None:
    config = tiny_config(learner, tasks='2')
    out = train(config, tmp_path / 'run')
    now, rows = load_knowledge(out), metrics(out)
    as_format_1(out)
    old = load_knowledge(out)
    assert list(old.tasks) == list(now.tasks)
    for task in now.tasks:
        np.testing.assert_array_equal(old.policy(task).theta, now.policy(task).theta)
    train(config, out, resume=True)
    assert metrics(out) == rows


def test_another_format_is_refused_with_what_to_do(cut: Path, train: Train) -> None:
    path = cut / 'config.yaml'
    path.write_text(path.read_text().replace('format: 2', 'format: 9'))
    with pytest.raises(InvalidConfig, match='has format 9, this version reads 1 and 2; use the'):
        read_config(cut)
