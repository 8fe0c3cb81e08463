"""Meta-World settings: upstream's own limits, and what a wrong setting is told."""

import subprocess
import sys

from metaworld.env_dict import ALL_V3_ENVIRONMENTS
import numpy as np
import pytest

from lpgftw_ros.domains.metaworld.engine import CRITERIA, engine
from lpgftw_ros.domains.metaworld.settings import (
    describe,
    MetaWorldSettings,
    placements,
)
from lpgftw_ros.domains.suites import load_suite
from lpgftw_ros.errors import InvalidConfig, LpgftwError, UnknownName

SUITES = ('mt10', 'mt50', 'cw10', 'cw20', 'demo')


def test_table_and_criteria_cover_upstreams_fifty_tasks():
    names = {name.removesuffix('-v3') for name in ALL_V3_ENVIRONMENTS}
    assert set(placements()) == set(CRITERIA) == names


@pytest.mark.parametrize('task', ['reach', 'drawer-close', 'disassemble', 'peg-insert-side'])
def test_table_is_upstreams_reset_space(task):
    placement, space = placements()[task], engine(task).env._random_reset_space
    low = placement.object.low + (placement.goal.low if placement.goal else ())
    high = placement.object.high + (placement.goal.high if placement.goal else ())
    np.testing.assert_array_equal(space.low[: len(low)], low)
    np.testing.assert_array_equal(space.high[: len(high)], high)


@pytest.mark.parametrize('task', placements())
def test_defaults_are_allowed(task):
    assert len(MetaWorldSettings(task=task).vectors()) == 1


@pytest.mark.parametrize('suite', SUITES)
def test_suites_place_everything_explicitly(suite):
    for task in load_suite(suite).tasks:
        placement = placements()[task.settings['task']]
        assert 'object' in task.settings
        assert ('goal' in task.settings) == (placement.goal is not None)


@pytest.mark.parametrize('suite', ['mt10', 'mt50', 'cw10'])
def test_suites_stand_at_the_defaults(suite):
    for task in load_suite(suite).tasks:
        plain = MetaWorldSettings(task=task.settings['task'])
        assert MetaWorldSettings.from_mapping(task.settings).vectors() == plain.vectors()


def test_sizes_of_the_suites():
    assert [len(load_suite(suite).tasks) for suite in SUITES] == [10, 48, 10, 10, 5]


def test_published_order_of_mt10():
    expected = ('peg-insert-side', 'window-open', 'button-press-topdown', 'pick-place')
    assert load_suite('mt10').order(50)[:4] == expected


def test_cw20_is_cw10_twice():
    assert load_suite('cw20').order(3) == load_suite('cw10').order(3) * 2


def test_demo_repeats_two_tasks_elsewhere():
    tasks = [task.settings['task'] for task in load_suite('demo').tasks]
    assert tasks == ['reach', 'drawer-close', 'window-close', 'reach', 'drawer-close']


@pytest.mark.parametrize(
    ('settings', 'error', 'text'),
    [
        ({'task': 'raech'}, UnknownName, "did you mean 'reach'"),
        ({'task': 3}, InvalidConfig, 'must be a name'),
        ({}, InvalidConfig, 'missing'),
        ({'task': 'reach', 'rewards': 'v1'}, UnknownName, 'rewards'),
        ({'task': 'reach', 'reward': 'v3'}, UnknownName, 'v1, v2'),
        ({'task': 'reach', 'observation': 'pixels'}, UnknownName, 'paper6'),
        ({'task': 'reach', 'goal': [0, 0.8]}, InvalidConfig, 'three finite numbers'),
        ({'task': 'reach', 'goal': [0, float('nan'), 0.1]}, InvalidConfig, 'finite'),
        ({'task': 'reach', 'goal': [0, 2.0, 0.1]}, InvalidConfig, 'outside'),
        ({'task': 'reach', 'object': [True, 0.6, 0.02]}, InvalidConfig, 'three finite numbers'),
        ({'task': 'drawer-close', 'goal': [0, 0.7, 0]}, InvalidConfig, 'follows from its object'),
        ({'task': 'box-close', 'object': [0, 0.55, 0.02]}, InvalidConfig, '0.25 m'),
        (
            {
                'task': 'reach',
                'goal': [[0, 0.8, 0.2], [0.1, 0.8, 0.2]],
                'object': [[0, 0.6, 0.02]] * 3,
            },
            InvalidConfig,
            'equally many',
        ),
    ],
)
def test_wrong_settings_are_told_what_is_wrong(settings, error, text):
    with pytest.raises(error, match=text):
        describe(settings)


def test_the_suffix_of_upstream_may_be_given():
    assert MetaWorldSettings(task='reach-v3').task == 'reach'


@pytest.mark.parametrize(('observation', 'size'), [('paper6', 6), ('full39', 39)])
def test_dimensions(observation, size):
    assert describe({'task': 'reach', 'observation': observation})[:2] == (size, 4)


def test_a_list_of_goals_makes_resets_random():
    assert describe({'task': 'reach'}).deterministic_resets
    two = {'task': 'reach', 'goal': [[0, 0.8, 0.2], [0.1, 0.8, 0.2]]}
    assert not describe(two).deterministic_resets


def test_a_suite_with_a_wrong_goal_is_refused(tmp_path):
    path = tmp_path / 'own.yaml'
    path.write_text('kind: metaworld\ntasks: [{name: a, task: reach, goal: [9, 9, 9]}]\n')
    with pytest.raises(LpgftwError, match='outside what upstream allows'):
        load_suite(path)


def test_reading_mt50_loads_no_simulator():
    code = (
        'import sys; from lpgftw_ros.domains.suites import load_suite; load_suite("mt50"); '
        'sys.exit("metaworld" in sys.modules or "mujoco" in sys.modules)'
    )
    assert subprocess.run([sys.executable, '-c', code], check=False).returncode == 0
