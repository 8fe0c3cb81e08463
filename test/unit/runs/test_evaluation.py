"""Reading and running the policies of a run folder, also of a damaged one."""

from collections.abc import Callable
import json
from pathlib import Path

import numpy as np
import pytest

from lpgftw_ros.cli import main
from lpgftw_ros.commands.explain import explain_run
from lpgftw_ros.domains.sampler import Sampler
from lpgftw_ros.errors import StateMismatch
from lpgftw_ros.runs.checkpoints import load_knowledge, load_local_models
from lpgftw_ros.runs.config import RunConfig
from lpgftw_ros.runs.driver import (
    evaluate_run,
    MOST_FRAMES,
    policies_over_time,
    starting_policy,
    video_pace,
    write_sheet,
)
from lpgftw_ros.runs.folder import BadRunFolder, read_config, read_rows
from lpgftw_ros.runs.session import Session
from lpgftw_ros.runs.visits import evaluation_seed

Make = Callable[..., RunConfig]
Train = Callable[..., Path]


@pytest.fixture
def run(tiny_config: Make, train: Train, tmp_path: Path) -> Path:
    return train(tiny_config(tasks='2', stochastic_episodes=3), tmp_path / 'run')


@pytest.mark.parametrize(('stochastic', 'stage'), [(False, 'final'), (True, 'final_stochastic')])
def test_policies_are_run_as_at_the_end_of_their_run(run: Path, stochastic: bool, stage: str):
    tasks = json.loads((run / 'summary.json').read_text())['tasks']
    found = evaluate_run(run, stochastic=stochastic, workers=1)
    assert [r.return_mean for r in found] == [task[stage]['return'] for task in tasks]


def test_an_evaluation_takes_the_episodes_of_its_kind(
    tiny_config: Make, train: Train, sampler: Sampler, tmp_path: Path, monkeypatch
) -> None:
    asked, collect = [], sampler.collect

    def noting(task, policy, n, seed, explore):
        asked.append((n, explore))
        return collect(task, policy, n, seed, explore)

    monkeypatch.setattr(sampler, 'collect', noting)
    train(tiny_config(tasks='1', evaluation_episodes=6, stochastic_episodes=5), tmp_path / 'run')
    assert {n for n, explore in asked if not explore} == {6}
    assert asked.count((5, True)) == 2  # tuned, and at the end


@pytest.mark.parametrize('line', ['{"task": "a"}', '["kind"]', '{"kind": "iter'])
def test_a_damaged_row_is_named_unless_it_is_the_last(tmp_path: Path, line: str) -> None:
    path, row = tmp_path / 'metrics.jsonl', '{"kind": "iteration"}'
    path.write_text(f'{row}\n{line}')
    assert read_rows(tmp_path) == [{'kind': 'iteration'}]
    path.write_text(f'{row}\n{line}\n{row}\n')
    with pytest.raises(BadRunFolder, match='metrics line 2 is damaged'):
        read_rows(tmp_path)


def damage(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def test_a_damaged_newest_checkpoint_is_passed_over(run: Path, capsys):
    tasks = list(load_knowledge(run).tasks)
    damage(run / 'checkpoints' / 'iteration.safetensors')
    assert list(load_knowledge(run).tasks) == tasks
    assert set(load_local_models(run)) <= set(tasks)
    assert main(['explain', str(run)]) == 0
    assert 'g-08' in capsys.readouterr().out


def test_two_damaged_checkpoints_are_said_in_one_line(run: Path, capsys):
    for path in (run / 'checkpoints').glob('iteration*'):
        path.write_bytes(b'x')
    with pytest.raises(StateMismatch):
        load_local_models(run)
    assert main(['explain', str(run)]) == 2
    assert capsys.readouterr().err.count('\n') == 1


@pytest.mark.parametrize('name', ['config.yaml', 'fingerprint.json'])
@pytest.mark.parametrize('content', [b'', b'\xff\xfe\x00', b'[1, 2]'])
def test_a_damaged_file_is_named_in_one_line(run: Path, capsys, name: str, content: bytes):
    (run / name).write_bytes(content)
    capsys.readouterr()
    assert main(['train', '--resume', '--out', str(run), '--workers', '1']) == 2
    said = capsys.readouterr().err
    assert (name in said, said.count('\n')) == (True, 1)


@pytest.mark.parametrize('period', [0.05, 0.0125, 0.002, 0.5])
def test_videos_run_as_fast_as_simulated_time(period: float):
    every, rate = video_pace(period)
    assert 1000 / every / rate == pytest.approx(1000 * period)
    assert rate <= 1.5 * MOST_FRAMES


def test_each_task_has_a_video_that_lasts_as_long_as_its_episode(run: Path, tmp_path: Path):
    import imageio.v2 as imageio

    assert main(['evaluate', str(run), '--workers', '1', '--render', str(tmp_path / 'v')]) == 0
    videos = sorted((tmp_path / 'v').iterdir())
    assert [path.name for path in videos] == ['g-08.mp4', 'g-12.mp4']
    with imageio.get_reader(videos[0]) as video:
        assert video.get_meta_data()['duration'] == pytest.approx(20 * 0.05, abs=0.06)


def test_the_starting_and_the_tuned_policy_are_made_again(run: Path, sampler):
    tasks = json.loads((run / 'summary.json').read_text())['tasks']
    config = read_config(run)
    for entry in tasks:
        policies = policies_over_time(run, entry['task'])
        seed = evaluation_seed(config.loop.seed, entry['task'])
        for policy, stage in zip(policies, ('start', 'tune', 'final'), strict=True):
            batch = sampler.collect(entry['task'], policy, 2, seed, explore=False)
            assert batch.returns.mean() == entry[stage]['return'], (entry['task'], stage)


def test_the_tuned_policy_has_the_residual_that_stays_with_its_task(
    tiny_config: Make, train: Train, sampler: Sampler, tmp_path: Path
) -> None:
    settings = {'max_columns': 1, 'guard_tolerance': 0.0, 'inherit_margin': 0.0, 'draws': 1}
    run = train(tiny_config('lpg-ftw-adaptive', tasks='3', **settings), tmp_path / 'run')
    assert load_knowledge(run).tasks['g-06'].residual.any()
    for entry in json.loads((run / 'summary.json').read_text())['tasks']:
        _, tuned, _ = policies_over_time(run, entry['task'])
        seed = evaluation_seed(read_config(run).loop.seed, entry['task'])
        batch = sampler.collect(entry['task'], tuned, 2, seed, explore=False)
        assert batch.returns.mean() == pytest.approx(entry['tune']['return'])


def test_what_moved_is_measured_from_where_the_task_was_tuned(
    tiny_config: Make, train: Train, tmp_path: Path
) -> None:
    settings = {'max_columns': 1, 'guard_tolerance': 0.0, 'inherit_margin': 0.0, 'draws': 1}
    tuned: dict[str, np.ndarray] = {}

    def look(session: Session) -> None:
        learner = session.learner
        if learner.running is not None:
            tuned[learner.running] = learner.knowledge().compose(learner.factors()).theta

    config = tiny_config('lpg-ftw-adaptive', tasks='3', **settings)
    run = train(config, tmp_path / 'run', on_step=look)
    knowledge, found = explain_run(run, None)
    for one in found:
        change = knowledge.policy(one.task).theta - tuned[one.task]
        moved = np.linalg.norm(change) / np.linalg.norm(tuned[one.task])
        assert one.moved == pytest.approx(moved)


def test_the_start_of_a_task_is_the_one_it_had_or_not_kept(
    tiny_config: Make, train: Train, tmp_path: Path
) -> None:
    """Knowledge is saved more often than once per visit: a file's number may be another's."""
    starts: dict[str, np.ndarray] = {}

    def look(session: Session) -> None:
        learner, visit = session.learner, session.lifelong.current
        if learner.running is not None and visit is not None and not visit.finished_iterations:
            starts[learner.running] = learner.knowledge().compose(learner.factors()).theta

    settings = {'draws': 1, 'guard_tolerance': 0.0, 'inherit_margin': 0.0}
    config = tiny_config('lpg-ftw-adaptive', tasks='4', **settings)
    run = train(config, tmp_path / 'run', on_step=look)
    for task, theta in starts.items():
        found = starting_policy(run, config, load_knowledge(run).spec, task)
        assert found is None or np.array_equal(found.theta, theta)


def test_the_contact_sheet_has_a_row_per_task(run: Path, tmp_path: Path):
    from PIL import Image

    path = tmp_path / 'new' / 'below' / 'sheet.png'
    assert main(['evaluate', str(run), '--workers', '1', '--sheet', str(path)]) == 0
    assert Image.open(path).size == (130 + 3 * 240, 22 + 2 * 180)
    write_sheet(run, path, [])  # into a folder that is there
    assert Image.open(path).size == (130 + 3 * 240, 22)
