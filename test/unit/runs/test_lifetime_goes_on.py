"""A run learns further tasks, moves to another place, and hands its knowledge on."""

from collections.abc import Callable
import json
from pathlib import Path
import shutil

import numpy as np
import pytest

from lpgftw_ros.cli import main
from lpgftw_ros.commands.learn import new_tasks
from lpgftw_ros.domains.sampler import Sampler
from lpgftw_ros.errors import InvalidConfig
from lpgftw_ros.learning.arrays import Batch
from lpgftw_ros.learning.learner import Probe
from lpgftw_ros.runs.checkpoints import CheckpointStore, load_knowledge
from lpgftw_ros.runs.config import RunConfig
from lpgftw_ros.runs.driver import policy_spec
from lpgftw_ros.runs.folder import read_config
from lpgftw_ros.runs.session import Session
from lpgftw_ros.runs.visits import Collect

from .conftest import metrics, SUITE
from .test_switching import Driver

Make, Train = Callable[..., RunConfig], Callable[..., Path]


@pytest.mark.parametrize('learner', ['lpg-ftw', 'stl', 'ewc', 'er', 'lpg-ftw-adaptive'])
def test_tasks_added_to_a_finished_run_give_the_bytes_of_one_that_had_them(
    tiny_config: Make, train: Train, tmp_path: Path, learner: str
) -> None:
    whole = train(tiny_config(learner, tasks='g-08,g-12,g-06,g-08'), tmp_path / 'whole')
    grown = train(tiny_config(learner, tasks='g-08,g-12'), tmp_path / 'grown')
    assert main(['learn', str(grown), 'g-06', 'g-08', '--workers', '1']) == 0
    assert metrics(grown) == metrics(whole)
    states = [CheckpointStore(out / 'checkpoints').newest().state for out in (whole, grown)]
    assert states[0].keys() == states[1].keys()
    for name, array in states[0].items():
        np.testing.assert_array_equal(states[1][name], array, err_msg=name)
    summaries = [json.loads((out / 'summary.json').read_text()) for out in (whole, grown)]
    assert summaries[0]['tasks'] == summaries[1]['tasks']
    assert summaries[1]['state'] == 'finished'


def test_a_run_that_was_cut_first_ends_what_it_began(
    tiny_config: Make, train: Train, tmp_path: Path
) -> None:
    class Cut(Exception):
        pass

    def look(session: Session) -> None:
        if session.learner.iteration == 2:
            raise Cut

    out = tmp_path / 'run'
    with pytest.raises(Cut):
        train(tiny_config(tasks='2'), out, on_step=look)
    assert main(['learn', str(out), 'g-10', '--workers', '1']) == 0
    learned = [row['task'] for row in metrics(out) if row['kind'] == 'update']
    assert learned == ['g-08', 'g-12', 'g-10']


def test_added_tasks_survive_a_stop(
    tiny_config: Make, train: Train, sampler: Sampler, tmp_path: Path
) -> None:
    config = tiny_config(tasks='1')
    out = train(config, tmp_path / 'run')
    with Session(config, out, spec=policy_spec(config, sampler), resume=True) as session:
        session.lifelong.extend(['g-06'])
        session.lifelong.queue.clear()  # as `stop` in the graph does
        session.save()
    rows = metrics(train(config, out, resume=True))
    assert [row['task'] for row in rows if row['kind'] == 'update'] == ['g-08', 'g-06']


def test_a_task_of_another_suite_becomes_part_of_the_run(
    tiny_config: Make, train: Train, tmp_path: Path
) -> None:
    other = tmp_path / 'other.yaml'
    text = SUITE.replace('g-06, gravity: 0.6', 'g-20, gravity: 2.0')
    other.write_text(text.replace('g-06', 'g-20'))
    out = train(tiny_config(tasks='1'), tmp_path / 'run')
    assert main(['learn', str(out), 'g-20', '--suite', str(other), '--workers', '1']) == 0
    other.unlink()
    assert 'g-20' in load_knowledge(out).tasks
    assert main(['evaluate', str(out), '--workers', '1']) == 0


def test_tasks_a_run_cannot_learn_are_refused(
    tiny_config: Make, train: Train, tmp_path: Path
) -> None:
    out = train(tiny_config(tasks='1'), tmp_path / 'run')
    with pytest.raises(InvalidConfig, match='has 6 observations and 4 actions, the policies'):
        new_tasks(read_config(out), ['reach'], 'demo')
    other = tmp_path / 'other.yaml'
    other.write_text(SUITE.replace('gravity: 1.2', 'gravity: 1.3'))
    with pytest.raises(InvalidConfig, match="another task 'g-12'"):
        new_tasks(read_config(out), ['g-12'], str(other))
    assert main(['learn', str(out), 'nothing']) == 2


def test_tasks_without_a_name_are_recognised_or_learned(
    tiny_config: Make, train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = train(tiny_config('lpg-ftw-adaptive', tasks='g-08,g-12'), tmp_path / 'run')
    before = json.loads((out / 'summary.json').read_text())['steps']
    assert main(['learn', str(out), 'g-12', '--unknown', '--workers', '1']) == 0
    told = capsys.readouterr().out
    assert 'g-12 is known: distance to g-12 0, g-08 ' in told
    assert 'act with the policy of g-12' in told
    assert list(load_knowledge(out).tasks) == ['g-08', 'g-12']
    assert main(['learn', str(out), 'g-06', '--unknown']) == 0
    assert 'g-06 is new: distance to ' in capsys.readouterr().out
    assert list(load_knowledge(out).tasks) == ['g-08', 'g-12', 'g-06']
    steps = json.loads((out / 'summary.json').read_text())['steps']
    assert steps > before + sum(row['steps'] for row in metrics(out) if row['task'] == 'g-06')


@pytest.mark.parametrize('source', ['export', 'save', 'folder'])
def test_knowledge_goes_on_with_the_random_numbers_it_was_measured_with(
    tiny_config: Make, train: Train, sampler: Sampler, tmp_path: Path, source: str
) -> None:
    """Another seed, a kill, and another seed again: tasks are recognised, probes are paired."""
    first = train(tiny_config('lpg-ftw-adaptive', tasks='2', seed=3), tmp_path / 'first')
    out, spec = first, policy_spec(tiny_config(), sampler)
    for seed in (5, 6):
        path = tmp_path / f'{seed}.safetensors' if source != 'folder' else out
        if source == 'export':
            with Session(read_config(out), out, spec=spec, resume=True) as session:
                session.export_knowledge(path)
        elif source == 'save':
            assert main(['knowledge', 'save', str(out), str(path)]) == 0
        out, config = tmp_path / str(seed), tiny_config('lpg-ftw-adaptive', tasks='2', seed=seed)
        Session(config, out, spec=spec, knowledge=path).folder.close()
        with Session(config, out, spec=spec, resume=True) as session:
            found = session.lifelong.recognise('g-12', lambda r: answered(session, sampler, r))
            probe = Probe('g-08', None, 3, False, 'guard')
            request = session.lifelong.probe_request(probe, 0)
        assert (found.kind, found.task, found.distances['g-12']) == ('known', 'g-12', 0.0)
        with Session(read_config(first), first, spec=spec, resume=True) as session:
            assert request.seed == session.lifelong.probe_request(probe, 0).seed


def answered(session: Session, sampler: Sampler, request: Collect) -> Batch:
    policy = session.policy(request)
    return sampler.collect(request.task, policy, request.n_trajectories, request.seed, False)


def test_a_method_that_cannot_recognise_tasks_says_so(
    tiny_config: Make, train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = train(tiny_config(tasks='1'), tmp_path / 'run')
    assert main(['learn', str(out), 'g-12', '--unknown', '--workers', '1']) == 2
    assert 'lpg-ftw needs to know which task it learns' in capsys.readouterr().err


def test_a_moved_run_is_read_from_any_folder(
    tiny_config: Make,
    train: Train,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tiny_suite: str,
) -> None:
    out = train(tiny_config(tasks='2'), tmp_path / 'run')
    assert main(['evaluate', str(out), '--json', '--workers', '1']) == 0
    before = json.loads(capsys.readouterr().out)['tasks']
    moved = tmp_path / 'elsewhere' / 'moved'
    moved.parent.mkdir()
    shutil.move(out, moved)
    Path(tiny_suite).unlink()
    monkeypatch.chdir('/')
    assert main(['evaluate', str(moved), '--json', '--workers', '1']) == 0
    assert json.loads(capsys.readouterr().out)['tasks'] == before
    assert main(['train', '--resume', '--out', str(moved), '--workers', '1']) == 0


def test_knowledge_is_saved_shown_compared_and_taken_up(
    tiny_config: Make, train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = train(tiny_config(tasks='3'), tmp_path / 'run')
    file = tmp_path / 'knowledge.safetensors'
    assert main(['knowledge', 'save', str(out), str(file)]) == 0
    capsys.readouterr()
    assert main(['knowledge', 'show', str(file), '--json']) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown['learner'], shown['columns'], shown['seed']) == ('lpg-ftw', 2, 7)
    assert list(shown['tasks']) == ['g-08', 'g-12', 'g-06']
    assert main(['knowledge', 'diff', str(out), str(file), '--json']) == 0
    same = json.loads(capsys.readouterr().out)
    assert same['basis_change'] == 0.0
    assert set(same['policy_change'].values()) == {0.0}
    words = ['train', '--suite', tiny_config().suite, '--tasks', 'g-10', '--iterations', '2']
    words += ['--set', 'max_columns=2', '--workers', '1', '--out', str(tmp_path / 'second')]
    assert main([*words, '--knowledge', str(file)]) == 0
    second = load_knowledge(tmp_path / 'second')
    assert list(second.tasks) == ['g-08', 'g-12', 'g-06', 'g-10']
    capsys.readouterr()
    assert main(['knowledge', 'diff', str(file), str(tmp_path / 'second'), '--json']) == 0
    assert json.loads(capsys.readouterr().out)['only_second'] == ['g-10']


SLIDER = """
horizon: 10
hidden: [16, 16]
tasks:
  - {name: hot, id: Pendulum-v1}
  - {name: moon, id: Pendulum-v1, kwargs: {g: 1.62}}
  - {name: mars, id: Pendulum-v1, kwargs: {g: 3.71}}
sequence: [hot, moon, mars]
"""


def test_compact_knowledge_is_small_and_goes_on_as_the_whole_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = tmp_path / 'slider.yaml'
    suite.write_text(SLIDER)
    words = ['train', '--suite', str(suite), '--iterations', '1', '--trajectories', '5']
    words += ['--set', 'max_columns=1', '--workers', '1']
    assert main([*words, '--tasks', 'hot,moon', '--out', str(tmp_path / 'run')]) == 0
    files = [tmp_path / 'whole.safetensors', tmp_path / 'compact.safetensors']
    save = ['knowledge', 'save', str(tmp_path / 'run')]
    assert main([*save, str(files[0])]) == 0
    assert main([*save, str(files[1]), '--compact', '--card']) == 0
    H = 2 * 8 * 336**2  # both local models: 336 parameters
    whole, small = (file.stat().st_size for file in files)
    assert small < whole - 0.4 * H
    for i, file in enumerate(files):
        out = ['--tasks', 'mars', '--out', str(tmp_path / f'goes-on-{i}')]
        assert main([*words, *out, '--knowledge', str(file)]) == 0
    whole_L, small_L = (load_knowledge(tmp_path / f'goes-on-{i}').basis for i in range(2))
    # every curvature is right to a thousandth of its smallest eigenvalue
    assert np.linalg.norm(small_L - whole_L) < 1e-3 * np.linalg.norm(whole_L)
    card = (tmp_path / 'compact.md').read_text()
    for said in ('2 tasks', '## Licence', '| moon |', 'lpgftw train --suite', '--knowledge'):
        assert said in card


def test_knowledge_of_another_method_is_refused(
    tiny_config: Make, train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = train(tiny_config('ewc', tasks='1'), tmp_path / 'run')
    words = ['train', '--suite', tiny_config().suite, '--tasks', '1', '--out', str(tmp_path / 'x')]
    assert main([*words, '--knowledge', str(out)]) == 2
    assert "the state is of learner 'ewc', not 'lpg-ftw'" in capsys.readouterr().err
    assert not (tmp_path / 'x').exists()  # a mistake leaves no folder to be resumed


def test_a_run_from_knowledge_never_goes_on_without_it(
    tiny_config: Make, train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ended between its configuration and its first checkpoint, it asks for the file again."""
    one = str(train(tiny_config(tasks='g-08'), tmp_path / 'one'))
    other = str(train(tiny_config(tasks='g-12'), tmp_path / 'other'))
    out, cut = tmp_path / 'run', tmp_path / 'cut'
    words = ['train', '--suite', tiny_config().suite, '--tasks', 'g-10', '--iterations', '2']
    words += ['--set', 'max_columns=2', '--workers', '1']
    assert main([*words, '--knowledge', one, '--out', str(out)]) == 0
    shutil.copytree(out, cut)
    for path in (*(cut / 'checkpoints').iterdir(), cut / 'metrics.jsonl', cut / 'summary.json'):
        path.unlink()
    resume = ['train', '--resume', '--workers', '1', '--out', str(cut)]
    assert main(resume) == 2
    assert 'add --knowledge' in capsys.readouterr().err
    assert main([*resume, '--knowledge', other]) == 2
    assert 'other knowledge' in capsys.readouterr().err
    assert main([*resume, '--knowledge', one]) == 0
    assert metrics(cut) == metrics(out)
    assert main([*resume, '--knowledge', other]) == 2
    assert main([*resume, '--knowledge', one]) == 0


def test_a_run_without_a_finished_task_has_no_knowledge_to_save(
    tiny_config: Make, sampler: Sampler, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    driver = Driver(tiny_config(tasks='1'), tmp_path / 'run', sampler)
    driver.until(visit=0, iteration=2)
    driver.session.background()
    driver.session.folder.close()
    assert main(['knowledge', 'save', str(tmp_path / 'run'), str(tmp_path / 'k')]) == 2
    assert 'no task is finished' in capsys.readouterr().err
    assert not (tmp_path / 'k').exists()
    assert main(['explain', str(tmp_path / 'run')]) == 0
    assert 'no task is finished yet' in capsys.readouterr().out
