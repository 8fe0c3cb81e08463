"""What is started around an arm, and what the arm side refuses before anything starts."""

from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from lpgftw_ros.deploy.arm.env import build_arm_side
from lpgftw_ros.deploy.export import ContractMismatch, export_policy, save_policy
from lpgftw_ros.deploy.observation import ControlSettings
from lpgftw_ros.errors import InvalidConfig, UnknownName
from lpgftw_ros.graph.deployment import (
    deploy_options,
    DeployOptions,
    describe_deployment,
    require_files,
)
from lpgftw_ros.graph.parameters import LearnerParameters
from lpgftw_ros.graph.supervisor import PRIORITY_VARIABLE
from lpgftw_ros.learning.policies import PolicySnapshot, PolicySpec
from lpgftw_ros.resources import data_folder

LIMITS = str(data_folder('sim/sawyer') / 'safety.yaml')


def write_policy(folder, task='reach', **settings):
    import numpy as np

    policy = PolicySnapshot(PolicySpec(6, 4), np.zeros(28), np.zeros(0), np.zeros(4))
    save_policy(export_policy(policy, task, ControlSettings(**settings), {}), folder / 'policy')
    return str(folder / 'policy')


def graph(**options):
    return describe_deployment(deploy_options(options))


def test_nothing_that_can_move_an_arm_starts_or_restarts_by_itself():
    for process in graph(rehearse=True, policy_file='p').processes:
        autostart = process.parameters[process.executable]['autostart']
        expected = process.executable in ('policy', 'sawyer_sim')
        assert (autostart, process.respawn) == (expected, False)


def test_a_rehearsal_has_an_arm_of_its_own():
    names = [p.executable for p in graph(rehearse=True, policy_file='p').processes]
    assert names == ['policy', 'arm_bridge', 'safety_guard', 'sawyer_sim']


def test_the_guard_goes_first_and_learning_waits():
    options = {'rehearse': True, 'reward': 'reach', 'realtime_priority': 40}
    priorities = {
        p.executable: p.environment[PRIORITY_VARIABLE] for p in graph(**options).processes
    }
    first = dict.fromkeys(('safety_guard', 'sawyer_sim'), '40')
    second = dict.fromkeys(('policy', 'arm_bridge'), '39')
    assert priorities == {**first, **second, 'learner': '0'}


def test_a_real_arm_has_no_simulated_one():
    names = [p.executable for p in graph(limits_file='l', policy_file='p').processes]
    assert 'sawyer_sim' not in names


def test_without_a_policy_the_learner_joins_but_does_not_begin_by_itself():
    processes = {p.executable: p for p in graph(rehearse=True, reward='reach').processes}
    assert processes['learner'].parameters['learner']['autotrain'] is False


def test_learning_on_an_arm_can_be_resumed_and_seeded():
    options = {'resume': 'true', 'seed': '3', 'preset': 'paper', 'source': 'stl', 'out': 'run'}
    processes = {
        p.executable: p for p in graph(rehearse=True, reward='reach', **options).processes
    }
    given = processes['learner'].parameters['learner']
    assert (given['resume'], given['seed'], given['preset']) == (True, 3, 'paper')
    assert all(Path(given[name]).is_absolute() for name in ('source', 'out'))


def test_resuming_nothing_in_particular_is_refused():
    with pytest.raises(InvalidConfig, match='resume needs out'):
        deploy_options({'rehearse': True, 'reward': 'reach', 'resume': True})


def test_the_simulated_arm_keeps_a_seed_of_its_own():
    processes = {p.executable: p for p in graph(rehearse=True, policy_file='p').processes}
    assert 'seed' not in processes['sawyer_sim'].parameters['sawyer_sim']


@pytest.mark.parametrize('item', fields(LearnerParameters), ids=lambda item: item.name)
def test_everything_of_the_learner_can_be_chosen(item):
    chosen_by_us = ('autostart', 'run_id', 'tasks', 'autotrain', 'exit_when_done')
    assert item.name in {*chosen_by_us, *(option.name for option in fields(DeployOptions))}


def test_a_real_arm_without_limits_is_refused():
    with pytest.raises(InvalidConfig, match='limits_file is required'):
        deploy_options({'policy_file': 'p'})


def test_a_file_that_is_not_there_is_named_before_anything_starts(tmp_path):
    require_files(deploy_options({'rehearse': True, 'policy_file': write_policy(tmp_path)}))
    with pytest.raises(InvalidConfig, match='policy_file: there is no file'):
        require_files(deploy_options({'rehearse': True, 'policy_file': 'gone'}))


def test_neither_policy_nor_reward_is_refused():
    with pytest.raises(InvalidConfig, match='policy_file'):
        deploy_options({'rehearse': True})


def test_an_unknown_reward_is_refused_before_anything_starts():
    with pytest.raises(InvalidConfig, match=r'reward must be one of.*drawer-close'):
        deploy_options({'rehearse': True, 'reward': 'hammer'})


def test_an_unknown_option_is_refused():
    with pytest.raises(UnknownName, match='rehearse'):
        deploy_options({'rehearze': True})


def test_every_option_has_a_help_text():
    assert all(item.metadata['help'] for item in fields(DeployOptions))


def test_the_arm_side_takes_the_policy_it_was_given(tmp_path):
    side = build_arm_side(
        task='reach',
        control=ControlSettings(),
        limits_file=LIMITS,
        policy_file=write_policy(tmp_path),
    )
    assert len(side.contract.hash) == 64


@pytest.mark.parametrize(
    ('policy', 'control', 'named'),
    [
        ({'task': 'push'}, {}, 'task'),
        ({'rate': 10.0}, {}, 'rate'),
        ({}, {'full_speed': 0.05}, 'action_scale'),
    ],
)
def test_a_policy_made_for_something_else_is_refused(tmp_path, policy, control, named):
    with pytest.raises(ContractMismatch, match=named):
        build_arm_side(
            task='reach',
            control=ControlSettings(**control),
            limits_file=LIMITS,
            policy_file=write_policy(tmp_path, **policy),
        )


def test_an_action_faster_than_the_guard_allows_is_refused():
    with pytest.raises(InvalidConfig, match='max_speed'):
        build_arm_side(task='reach', control=ControlSettings(full_speed=0.2), limits_file=LIMITS)


def test_a_rate_the_guard_would_take_for_a_lost_link_is_refused_with_both_numbers():
    with pytest.raises(InvalidConfig, match='rate 5 Hz') as refusal:
        build_arm_side(task='reach', control=ControlSettings(rate=5.0), limits_file=LIMITS)
    assert all(number in str(refusal.value) for number in ('0.25 s', '0.1575 s', '0.513 s'))


def test_the_action_timeout_a_refusal_asks_for_is_enough(tmp_path):
    limits = yaml.safe_load(Path(LIMITS).read_text()) | {'action_timeout': 0.513}
    (tmp_path / 'limits.yaml').write_text(yaml.safe_dump(limits))
    file = str(tmp_path / 'limits.yaml')
    build_arm_side(task='reach', control=ControlSettings(rate=5.0), limits_file=file)


@pytest.mark.parametrize('rate', [10.0, 100.0])
def test_the_shipped_limits_allow_ten_commands_per_second_and_more(rate):
    build_arm_side(task='reach', control=ControlSettings(rate=rate), limits_file=LIMITS)


@pytest.mark.parametrize('bad', [{'limits_file': ''}, {'limits_file': 'nowhere.yaml'}])
def test_missing_limits_are_refused(bad):
    with pytest.raises(InvalidConfig, match='limits_file'):
        build_arm_side(task='reach', control=ControlSettings(), **bad)


@pytest.mark.parametrize('content', ['{', '- 1', 'max_speed'])
@pytest.mark.parametrize('name', ['limits_file', 'arm_file'])
def test_a_file_that_holds_something_else_is_named(tmp_path, name, content):
    (tmp_path / 'broken.yaml').write_text(content)
    files = {'limits_file': LIMITS} | {name: str(tmp_path / 'broken.yaml')}
    with pytest.raises(InvalidConfig, match=r'broken\.yaml'):
        build_arm_side(task='reach', control=ControlSettings(), **files)


@pytest.mark.parametrize(
    ('changes', 'named'), [({'hand': 'claw'}, 'claw'), ({'joint_low': 'low'}, 'numbers')]
)
def test_an_arm_description_that_does_not_fit_is_refused(tmp_path, changes, named):
    arm = yaml.safe_load((data_folder('sim/sawyer') / 'arm.yaml').read_text()) | changes
    (tmp_path / 'arm.yaml').write_text(yaml.safe_dump(arm))
    files = {'limits_file': LIMITS, 'arm_file': str(tmp_path / 'arm.yaml')}
    with pytest.raises(InvalidConfig, match=named):
        build_arm_side(task='reach', control=ControlSettings(), **files)


@pytest.mark.parametrize(
    ('frame', 'named'),
    [
        ({'frame_xyz': 'here'}, 'frame_xyz'),
        ({'frame_rpy': '0 0 nan'}, 'frame_rpy'),
        ({'frame_xyz': '0 0', 'frame_rpy': '0 0 0 0'}, 'frame_xyz'),
    ],
)
def test_a_frame_that_is_not_three_numbers_each_is_refused(frame, named):
    with pytest.raises(InvalidConfig, match=f'{named} must be three numbers'):
        build_arm_side(task='reach', control=ControlSettings(), limits_file=LIMITS, **frame)
