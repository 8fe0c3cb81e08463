"""The table of evaluations is the only place that spells their names."""

from pathlib import Path
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

import lpgftw_ros
from lpgftw_ros.runs.config import resolve
from lpgftw_ros.runs.lifelong import Lifelong
from lpgftw_ros.runs.records import summary
from lpgftw_ros.runs.stages import EVALUATIONS, evaluations, STAGES
from lpgftw_ros.runs.visits import program_length, Stage, stage_at, Visit

PACKAGE = Path(lpgftw_ros.__file__).parent


def stages_of(stochastic: int, matrix: bool) -> list[Stage]:
    overrides = {'stochastic_episodes': stochastic, 'matrix': matrix}
    config = resolve('halfcheetah-gravity', 'lpg-ftw', overrides=overrides, tasks='2')
    visit = Visit(1, 'b', iterations=3, trajectories=2, known=('a', 'b'))
    found = []
    for position in range(program_length(config, visit)):
        visit.position = position
        found.append(stage_at(config, visit))
    return found


def names_of(stochastic: int, matrix: bool) -> list[str]:
    return [stage.name for stage in stages_of(stochastic, matrix)]


def test_a_visit_takes_its_stages_in_this_order() -> None:
    steps = ['start', 'iterate', 'start_after_update', 'iterate', 'iterate']
    assert names_of(0, False) == [*steps, 'tune', 'update_knowledge', 'update']
    ending = ['tune', 'tune_stochastic', 'update_knowledge', 'update', 'matrix', 'matrix']
    assert names_of(5, True) == [*steps, *ending]


def test_only_the_matrix_measures_other_tasks() -> None:
    assert [stage.task for stage in stages_of(0, True)] == [''] * 8 + ['a', 'b']
    assert [stage.iteration for stage in stages_of(0, False)] == [0, 0, 0, 1, 2, 0, 0, 0]


def test_an_evaluation_takes_the_episodes_of_its_kind() -> None:
    overrides = {'evaluation_episodes': 6, 'stochastic_episodes': 5}
    config = resolve('halfcheetah-gravity', 'stl', overrides=overrides, tasks='2')
    loop = Lifelong(config, SimpleNamespace(), {'random': False, 'fixed': True})
    counts = {
        (task, explore): loop._evaluation(
            task, 0, Stage('final', 'evaluate', explore=explore)
        ).n_trajectories
        for task in ('random', 'fixed')
        for explore in (False, True)
    }
    assert counts == {
        ('random', False): 6,
        ('random', True): 5,
        ('fixed', False): 1,
        ('fixed', True): 5,
    }


def test_a_visit_knows_the_tasks_finished_before_it_and_its_own() -> None:
    config = resolve('halfcheetah-gravity', 'pg-ella', tasks='3')  # has no iterations
    learner = SimpleNamespace(start_task=lambda task, seed: None, wants=lambda: None)
    loop, (first, second, third) = Lifelong(config, learner, {}), config.tasks
    assert loop.current is None
    loop.next_request()
    assert loop.current is loop.visits[0]
    loop.visits[0].state, loop._current = 'finished', None
    loop.next_request()
    loop.visits[1].state, loop._current = 'parked', None
    loop.next_request()
    assert [visit.known for visit in loop.visits] == [(first,), (first, second), (first, third)]
    loop.visits[2].state, loop._current, loop.queue = 'finished', None, [second]
    loop.next_request()  # it only has to be folded in: what it knew holds
    assert [visit.known for visit in loop.visits] == [(first,), (first, second), (first, third)]


@pytest.mark.parametrize(('running', 'state'), [('a', 'parked'), (None, 'finished')])
def test_a_task_that_is_folded_in_is_finished_when_its_visit_is_left(
    running: str | None, state: str
) -> None:
    left: list[str] = []
    learner = SimpleNamespace(running=running, park_task=lambda: left.append('parked'))
    loop = Lifelong(resolve('halfcheetah-gravity', 'stl', tasks='2'), learner, {})
    loop.visits, loop._current = [Visit(0, 'a', 3, 2, known=('a',))], 0
    loop.set_aside()
    assert (loop.visits[0].state, loop.current) == (state, None)
    assert left == ([state] if running else [])
    assert loop.changes == (False, True)


def test_the_summary_has_the_mean_of_the_tasks_that_reached_a_stage() -> None:
    config = resolve('halfcheetah-gravity', 'stl', tasks='2')
    scores = [{'return': 2.0, 'success': 1.0}, {'return': 4.0, 'success': 0.0}]
    visits = [
        Visit(i, task, 3, 2, known=(), columns=i + 1, scores={'start': score})
        for i, (task, score) in enumerate(zip('ab', scores, strict=True))
    ]
    visits[0].scores['tune'] = {'return': 7.0, 'success': 0.5}
    told = summary(config, visits, finished=False, steps=5, parameters=9, seconds={}, versions={})
    assert told['mean']['start'] == {'return': 3.0, 'success': 0.5}
    assert told['mean']['tune'] == {'return': 7.0, 'success': 0.5}
    assert told['mean']['final'] is None
    assert (told['state'], told['columns'], told['matrix']) == ('running', 2, None)


def test_the_last_evaluations_are_one_of_the_mean_action_and_one_with_noise() -> None:
    assert [(one.name, one.explore) for one in evaluations('end')] == [
        ('final', False),
        ('final_stochastic', True),
    ]


def test_finished_iterations_follow_the_position() -> None:
    visit = Visit(0, 'a', iterations=3, trajectories=2, known=())
    done = []
    for position in range(8):
        visit.position = position
        done.append(visit.finished_iterations)
    assert done == [0, 0, 1, 1, 2, 3, 3, 3]


def test_no_other_module_spells_a_name_that_only_an_evaluation_has() -> None:
    own = [
        one.name for one in EVALUATIONS if one.name not in ('start', 'update', 'matrix', 'final')
    ]
    spelled = re.compile('|'.join(rf"'{name}'|\"{name}\"" for name in own))
    found = [
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob('*.py')
        if spelled.search(path.read_text())
    ]
    assert sorted(found) == [
        'experiments/tables.py',
        'runs/stages.py',
    ]  # the first: as the paper says


def test_a_new_evaluation_needs_one_entry_of_the_table() -> None:
    """Plant one before anything else reads the table, and look for it in loop and summary."""
    program = """
import lpgftw_ros.runs.stages as stages
extra = stages.Evaluation('probe', 'tuned', 'planted', shown=True)
stages.EVALUATIONS = (*stages.EVALUATIONS, extra)
stages.STAGES = (*stages.STAGES, 'probe')
from lpgftw_ros.runs.config import resolve
from lpgftw_ros.runs.records import summary
from lpgftw_ros.runs.visits import program_length, stage_at, Visit
config = resolve('halfcheetah-gravity', 'stl', tasks='1')
visit = Visit(0, 'a', iterations=1, trajectories=1, known=('a',))
names = []
for visit.position in range(program_length(config, visit)):
    names.append(stage_at(config, visit).name)
assert names.count('probe') == 1, names
told = summary(config, [visit], finished=False, steps=0, parameters=0, seconds={}, versions={})
assert 'probe' in told['tasks'][0] and 'probe' in told['mean']
"""
    subprocess.run([sys.executable, '-c', program], check=True)


def test_the_summary_has_the_stages_of_the_table() -> None:
    assert len(STAGES) == len(set(STAGES)) == len(EVALUATIONS) - 1
