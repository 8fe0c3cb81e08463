"""Reading and running the policies of a run folder, also of a damaged one."""

from collections.abc import Callable
import json
from pathlib import Path

import pytest

from lpgftw_ros.cli import main
from lpgftw_ros.errors import StateMismatch
from lpgftw_ros.runs.config import RunConfig
from lpgftw_ros.runs.evaluation import evaluate_run
from lpgftw_ros.runs.knowledge_files import load_knowledge, load_local_models

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
