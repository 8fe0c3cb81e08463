from collections.abc import Callable
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lpgftw_ros.domains.sampler import Sampler
from lpgftw_ros.errors import InvalidConfig, StateMismatch
from lpgftw_ros.learning.registry import LEARNERS
from lpgftw_ros.runs import checkpoints, storage
from lpgftw_ros.runs.checkpoints import load_knowledge, load_local_models
from lpgftw_ros.runs.config import RunConfig
from lpgftw_ros.runs.driver import policy_spec
from lpgftw_ros.runs.folder import FolderInUse
from lpgftw_ros.runs.session import Session

from .conftest import metrics

Make, Train = Callable[..., RunConfig], Callable[..., Path]


class Crash(Exception):
    """Stands for the process dying at this very point."""


def test_summary_has_every_stage(tiny_config: Make, train: Train, tmp_path: Path) -> None:
    out = train(tiny_config(tasks='3'), tmp_path / 'run')
    summary = json.loads((out / 'summary.json').read_text())
    assert (summary['state'], summary['learner'], summary['seed']) == ('finished', 'lpg-ftw', 7)
    assert [task['task'] for task in summary['tasks']] == ['g-08', 'g-12', 'g-06']
    for task in summary['tasks']:
        for stage in ('start', 'start_after_update', 'tune', 'tune_stochastic', 'update', 'final'):
            assert task[stage].keys() == {'return', 'success'}
    expected = np.mean([task['tune']['return'] for task in summary['tasks']])
    assert summary['mean']['tune']['return'] == pytest.approx(expected)
    assert summary['steps'] == 3 * (3 * 4 + 3) * 20


def test_summary_is_readable_at_every_step(
    tiny_config: Make, train: Train, tmp_path: Path
) -> None:
    states = []

    def look(session: Session) -> None:
        states.append(json.loads((session.folder.path / 'summary.json').read_text()))

    train(tiny_config(tasks='2'), tmp_path / 'run', on_step=look)
    assert states[0]['state'] == 'running'
    assert states[0]['tasks'][0]['tune'] is None
    assert states[0]['tasks'][0]['start'] is not None


@pytest.mark.parametrize(
    ('learner', 'settings'),
    [('lpg-ftw', {}), ('lpg-ftw', {'update_every': 1}), ('stl', {}), ('ewc', {}), ('er', {})],
    ids=['lpg-ftw', 'update_every', 'stl', 'ewc', 'er'],
)
def test_a_run_cut_at_any_write_resumes_to_the_same_metrics(
    tiny_config: Make,
    train: Train,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    learner: str,
    settings: dict[str, Any],
) -> None:
    """Crash at the k-th file write for many k; some are inside a knowledge update."""
    config = tiny_config(learner, tasks='3', iterations=2, **settings)
    whole = train(config, tmp_path / 'whole')
    cut = tmp_path / 'cut'
    write, allowed = storage.write_bytes, [0]

    def failing(path: Path, content: bytes, **options: Any) -> None:
        if allowed[0] == 0:
            raise Crash
        allowed[0] -= 1
        write(path, content, **options)

    for module in (storage, checkpoints, __import__('lpgftw_ros.runs.folder', fromlist=['x'])):
        if hasattr(module, 'write_bytes'):
            monkeypatch.setattr(module, 'write_bytes', failing)
    crashes = 0
    for attempt in range(200):
        allowed[0] = 3 + attempt % 19
        try:
            train(config, cut, resume=True)
            break
        except Crash:
            crashes += 1
    assert crashes >= 5
    assert metrics(cut) == metrics(whole)


def test_a_run_that_dies_before_its_value_fit_repeats_the_iteration(
    tiny_config: Make, train: Train, tmp_path: Path
) -> None:
    """With M = 1 each step also changes L: that alone may not be saved."""
    config = tiny_config(tasks='2', iterations=3, max_columns=1, update_every=1)
    whole = train(config, tmp_path / 'whole')
    steps: list[int] = []

    def die(session: Session) -> None:
        steps.append(len(steps))
        if steps[-1] in (6, 9, 13, 15, 18):
            raise Crash

    for _ in range(6):
        try:
            train(config, tmp_path / 'cut', resume=True, on_step=die)
        except Crash:
            continue
    assert metrics(tmp_path / 'cut') == metrics(whole)


def test_a_damaged_newest_checkpoint_is_passed_over(
    tiny_config: Make, train: Train, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = tiny_config(tasks='2')
    whole, cut = train(config, tmp_path / 'whole'), tmp_path / 'cut'

    def crash(session: Session) -> None:
        if len(metrics(session.folder.path)) == 6:
            raise Crash

    with pytest.raises(Crash):
        train(config, cut, on_step=crash)
    newest = cut / 'checkpoints' / 'iteration.safetensors'
    content = bytearray(newest.read_bytes())
    content[-5] ^= 4
    newest.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        train(config, cut, resume=True)
    assert 'the checkpoint before it is used' in caplog.text
    assert metrics(cut) == metrics(whole)


def test_two_damaged_checkpoints_are_an_error(
    tiny_config: Make, train: Train, tmp_path: Path
) -> None:
    config = tiny_config(tasks='1')
    out = train(config, tmp_path / 'run')
    for path in (out / 'checkpoints').glob('iteration*'):
        path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(StateMismatch, match='no checkpoint can be used'):
        train(config, out, resume=True)


def test_a_folder_that_is_not_empty_is_refused(
    tiny_config: Make, train: Train, tmp_path: Path
) -> None:
    (tmp_path / 'run').mkdir()
    (tmp_path / 'run' / 'thesis.tex').write_text('years of work')
    for resume in (False, True):
        with pytest.raises(InvalidConfig, match='run'):
            train(tiny_config(), tmp_path / 'run', resume=resume)
    assert [p.name for p in (tmp_path / 'run').iterdir()] == ['thesis.tex']


def test_another_configuration_names_the_differing_keys(
    tiny_config: Make, train: Train, tmp_path: Path
) -> None:
    out = train(tiny_config(tasks='1'), tmp_path / 'run')
    with pytest.raises(InvalidConfig, match=r'method\.max_kl is 0\.1, asked for 0\.2'):
        train(tiny_config(tasks='1', max_kl=0.2), out, resume=True)


def test_a_folder_in_use_is_refused(tiny_config: Make, sampler: Sampler, tmp_path: Path) -> None:
    config = tiny_config()
    spec = policy_spec(config, sampler)
    with Session(config, tmp_path / 'run', spec=spec), pytest.raises(FolderInUse):
        Session(config, tmp_path / 'run', spec=spec, resume=True)


def test_resuming_a_finished_run_changes_nothing(
    tiny_config: Make, train: Train, tmp_path: Path
) -> None:
    config = tiny_config(tasks='2')
    out = train(config, tmp_path / 'run')
    before = (out / 'metrics.jsonl').read_bytes()
    train(config, out, resume=True)
    assert (out / 'metrics.jsonl').read_bytes() == before
    assert json.loads((out / 'summary.json').read_text())['state'] == 'finished'


@pytest.mark.parametrize('learner', [name for name in LEARNERS if name != 'pg-ella'])
def test_policies_can_be_read_without_the_learner(
    tiny_config: Make, train: Train, sampler: Sampler, tmp_path: Path, learner: str
) -> None:
    config = tiny_config(learner, tasks='2')
    out = train(config, tmp_path / 'run')
    knowledge = load_knowledge(out)
    assert list(knowledge.tasks) == ['g-08', 'g-12']
    if learner == 'lpg-ftw':
        assert load_local_models(out).keys() == knowledge.tasks.keys()
    spec = policy_spec(config, sampler)
    with Session(config, out, spec=spec, resume=True) as session:
        for task in knowledge.tasks:
            own = session.learner.knowledge().policy(task)
            for name in ('theta', 'head', 'log_std'):
                read, held = (getattr(policy, name) for policy in (knowledge.policy(task), own))
                np.testing.assert_array_equal(read, held)


def test_knowledge_moves_between_runs_as_one_file(
    tiny_config: Make, train: Train, sampler: Sampler, tmp_path: Path
) -> None:
    config = tiny_config(tasks='3')
    out = train(config, tmp_path / 'one')
    spec = policy_spec(config, sampler)
    with Session(config, out, spec=spec, resume=True) as session:
        session.export_knowledge(tmp_path / 'all.safetensors')
        theta = session.learner.knowledge().policy('g-12').theta
    for source in (tmp_path / 'all.safetensors', out):
        target = tmp_path / f'two-{source.name}'
        with Session(config, target, spec=spec) as session:
            session.import_knowledge(source)
            np.testing.assert_array_equal(session.learner.knowledge().policy('g-12').theta, theta)


def test_a_run_without_a_finished_task_has_no_knowledge_to_start_from(
    tiny_config: Make, train: Train, sampler: Sampler, tmp_path: Path
) -> None:
    config, out = tiny_config(tasks='3'), tmp_path / 'one'

    def stop(session: Session) -> None:
        if session.learner.iteration == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config, out, on_step=stop)
    spec = policy_spec(config, sampler)
    with pytest.raises(StateMismatch, match='none of its tasks is finished'):
        Session(config, tmp_path / 'two', spec=spec, knowledge=out)


def test_pruning_keeps_what_both_iterations_need(
    tiny_config: Make, train: Train, tmp_path: Path
) -> None:
    out = train(tiny_config(tasks='3', update_every=1), tmp_path / 'run')
    infos = [storage.read_info(p) for p in (out / 'checkpoints').glob('iteration*')]
    files = {p.name for p in (out / 'checkpoints').glob('task-*')}
    for info in infos:
        name = f'task-{info["base"]:03d}.safetensors'
        assert name in files
        models = storage.read_info(out / 'checkpoints' / name)['models'].values()
        assert {f'task-{number:03d}.safetensors' for number in models} <= files
    assert len(files) <= 5
