"""A run folder: what may stand in it, and what its files say."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from lpgftw_ros.domains.sampler import Sampler
from lpgftw_ros.domains.suites import load_suite
from lpgftw_ros.errors import InvalidConfig, StateMismatch
from lpgftw_ros.runs import session as sessions
from lpgftw_ros.runs import storage
from lpgftw_ros.runs.config import RunConfig
from lpgftw_ros.runs.driver import policy_spec
from lpgftw_ros.runs.folder import require_unchanged, RunFolder
from lpgftw_ros.runs.session import Session

from .conftest import SUITE

Make = Callable[..., RunConfig]


def test_what_a_kill_at_the_start_leaves_behind_is_no_obstacle(
    tiny_config: Make, tmp_path: Path
) -> None:
    out = tmp_path / 'below' / 'run'
    RunFolder(out, tiny_config(), resume=False).close()
    (out / 'config.yaml').rename(out / 'config.yaml.tmp')
    assert {p.name for p in out.iterdir()} == {'.lock', 'checkpoints', 'suite', 'config.yaml.tmp'}
    with RunFolder(out, tiny_config(), resume=False) as folder:
        assert folder.id
    with pytest.raises(InvalidConfig, match='not empty'):
        RunFolder(out, tiny_config(), resume=False)


def test_the_configuration_begins_with_what_a_person_looks_for(
    tiny_config: Make, tmp_path: Path
) -> None:
    with RunFolder(tmp_path / 'run', tiny_config(tasks='2'), resume=False) as folder:
        content = yaml.safe_load((tmp_path / 'run' / 'config.yaml').read_text())
        identity = folder.identity
    assert list(content)[:4] == ['run', 'format', 'suite', 'learner']
    assert content['run'] == folder.id
    assert content['tasks'] == ['g-08', 'g-12']
    assert (identity['id'], identity['config']['loop.seed']) == (folder.id, 7)
    assert identity['tasks'].keys() == {'g-08', 'g-12', 'g-06', 'g-10'}
    assert len(set(identity['tasks'].values())) == 4


def test_a_task_that_was_changed_and_one_that_is_gone_are_told_apart() -> None:
    noted = {'config': {'suite': 's'}, 'tasks': {'a': '1', 'b': '2'}}
    require_unchanged(noted, {'config': {'suite': 's', 'new': 1}, 'tasks': noted['tasks']})
    retired = {'config': noted['config'] | {'method.head_start': 'fresh'}, 'tasks': noted['tasks']}
    require_unchanged(retired, noted)
    for tasks, what in (({'a': '1', 'b': '9'}, 'was changed'), ({'a': '1'}, 'is gone')):
        with pytest.raises(StateMismatch, match=f"task 'b' {what}"):
            require_unchanged(noted, {'config': {'suite': 's'}, 'tasks': tasks})


def test_a_session_that_cannot_begin_releases_its_folder(
    tiny_config: Make, sampler: Sampler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, out = tiny_config(), tmp_path / 'run'
    spec = policy_spec(config, sampler)

    def fail(*args: object, **options: object) -> None:
        raise InvalidConfig('no learner today')

    with monkeypatch.context() as patch:
        patch.setattr(sessions, 'make_learner', fail)
        with pytest.raises(InvalidConfig, match='today') as caught:  # keeps the session alive
            Session(config, out, spec=spec)
    with Session(config, out, spec=spec, resume=True) as session:
        assert session.folder.read_json('summary.json')['seconds'].keys() == {
            *('sampling', 'policy', 'value', 'knowledge', 'evaluation', 'wall')
        }
    assert caught.value


def test_tasks_that_are_added_stand_in_the_copy_of_the_suite_as_they_were(
    tiny_config: Make, tmp_path: Path
) -> None:
    other = tmp_path / 'other.yaml'
    other.write_text(SUITE.replace('g-', 'h-').replace('horizon: 20', 'horizon: 30'))
    added = load_suite(str(other)).tasks[:2]
    with RunFolder(tmp_path / 'run', tiny_config(), resume=False) as folder:
        before = load_suite(folder.config.suite_source)
        folder.add_tasks(added)
        after = load_suite(folder.config.suite_source)
    assert after.tasks == (*before.tasks, *added)
    assert [task.horizon for task in after.tasks] == [20] * 4 + [30] * 2
    assert after.order(7)[:4] == before.order(7)


def test_a_file_that_is_being_written_has_a_name_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(
        storage.os, 'fsync', lambda handle: seen.append([p.name for p in tmp_path.iterdir()])
    )
    storage.write_bytes(tmp_path / 'config.yaml', b'format: 2')
    assert seen == [['config.yaml.tmp'], ['config.yaml']]


def test_a_save_without_news_writes_no_checkpoint(
    tiny_config: Make, sampler: Sampler, tmp_path: Path
) -> None:
    config, out = tiny_config(), tmp_path / 'run'
    path = out / 'checkpoints' / 'iteration.safetensors'
    with Session(config, out, spec=policy_spec(config, sampler)) as session:
        session.save()
        assert not path.exists()
        session.lifelong.hold()
        for _ in range(3):
            session.save()
            assert storage.read_info(path)['save'] == 1
