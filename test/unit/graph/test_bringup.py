from argparse import ArgumentParser
from pathlib import Path

import pytest
import yaml

from lpgftw_ros.commands import up
from lpgftw_ros.errors import InvalidConfig, LpgftwError, UnknownName
from lpgftw_ros.graph.bringup import describe, GraphOptions, options_from, require_run
from lpgftw_ros.graph.parameters import NODES


def test_the_default_graph_has_three_processes_with_one_node_each():
    graph = describe(GraphOptions())
    assert [process.nodes for process in graph.processes] == [
        ('sim_bridge',),
        ('policy',),
        ('learner',),
    ]


def test_composed_hosts_bridge_and_policy_in_one_process():
    graph = describe(GraphOptions(composed=True))
    assert [process.nodes for process in graph.processes] == [
        ('sim_bridge', 'policy'),
        ('learner',),
    ]


@pytest.mark.parametrize(
    ('words', 'expected'),
    [
        ([], {}),
        (['--seed', '0', '--iterations', '0'], {'seed': 0, 'iterations': 0}),
        (['--no-exit-when-done', '--no-respawn'], {'exit_when_done': False, 'respawn': False}),
        (
            ['--preset', 'paper', '--set', 'gamma=0.9'],
            {'preset': 'paper', 'settings': 'gamma=0.9'},
        ),
    ],
)
def test_up_passes_on_exactly_what_was_given(words, expected):
    parser = ArgumentParser()
    up.add_arguments(parser)
    assert up.given(parser.parse_args(words)) == expected


def test_composed_changes_no_node_name():
    composed = describe(GraphOptions(composed=True))
    assert composed.nodes == describe(GraphOptions()).nodes


def test_every_option_reaches_each_node_that_has_a_field_of_that_name():
    graph = describe(options_from({'suite': 'mt10', 'workers': '3'}))
    bridge, policy, learner = (process.parameters[process.nodes[0]] for process in graph.processes)
    assert (bridge['suite'], bridge['workers'], learner['suite']) == ('mt10', 3, 'mt10')
    assert 'suite' not in policy


def test_settings_and_lists_reach_the_learner_as_ros_has_them():
    said = {
        'settings': 'max_kl=1;hidden=8,8;iterations=4;seed=9',
        'tasks': 'reach, push',
        'seed': '3',
    }
    learner = describe(options_from(said)).processes[2].parameters['learner']
    assert (learner['settings.max_kl'], type(learner['settings.max_kl'])) == (1.0, float)
    assert (learner['settings.hidden'], learner['tasks']) == ([8, 8], ['reach', 'push'])
    assert (learner['iterations'], learner['seed']) == (4, 3)  # an option wins over a setting
    assert 'settings' not in learner
    with pytest.raises(UnknownName, match='max_kl'):
        describe(options_from({'settings': 'max_lk=1'}))


def test_a_parameter_file_wins_over_defaults_but_not_over_given_options(tmp_path):
    path = tmp_path / 'p.yaml'
    path.write_text('/**/learner: {ros__parameters: {suite: mt10, seed: 4}}')
    options = options_from({'params_file': str(path), 'seed': 9})
    learner = describe(options, given={'params_file', 'seed'}).processes[-1]
    assert learner.parameters['learner']['seed'] == 9
    assert 'suite' not in learner.parameters['learner']
    assert learner.ros_arguments('later.yaml')[:6] == [
        '--enclave',
        '/lifelong/learner',
        '--params-file',
        str(path),
        '--params-file',
        'later.yaml',
    ]


def test_written_parameters_name_the_nodes_with_their_namespace(tmp_path):
    graph = describe(GraphOptions(namespace='/cell_1', out='it is here'))
    content = yaml.safe_load(Path(graph.write_parameters(tmp_path)).read_text())
    parameters = content['/cell_1/learner']['ros__parameters']
    assert parameters['out'] == str(Path('it is here').absolute())
    assert parameters['run_id'] == graph.run_id


def test_all_nodes_get_the_same_new_run_id():
    first, second = describe(GraphOptions()), describe(GraphOptions())
    ids = {p.parameters[n]['run_id'] for p in first.processes for n in p.nodes}
    assert ids == {first.run_id}
    assert first.run_id != second.run_id


def test_a_given_run_id_is_kept():
    assert describe(GraphOptions(run_id='mine')).run_id == 'mine'


def test_discovery_stays_on_this_machine_unless_opened():
    environment = describe(GraphOptions()).environment
    assert environment['ROS_AUTOMATIC_DISCOVERY_RANGE'] == 'LOCALHOST'
    opened = describe(GraphOptions(discovery_range='SUBNET'))
    assert opened.processes[0].environment['ROS_AUTOMATIC_DISCOVERY_RANGE'] == 'SUBNET'


def test_a_node_may_have_its_own_log_level():
    graph = describe(GraphOptions(policy_log_level='debug', log_level='warn'))
    words = [process.ros_arguments()[-1] for process in graph.processes]
    assert words == [
        'lifelong.sim_bridge:=warn',
        'lifelong.policy:=debug',
        'lifelong.learner:=warn',
    ]


@pytest.mark.parametrize(
    ('values', 'words'),
    [
        ({'seed': '-2'}, ['seed', 'at least -1', '-2']),
        ({'realtime_factor': 'nan'}, ['realtime_factor', 'finite number']),
        ({'discovery_range': 'LAN'}, ['discovery_range', 'LOCALHOST', 'SUBNET', 'LAN']),
        ({'log_level': 'loud'}, ['log_level', 'debug', 'loud']),
        ({'namespace': 'life long'}, ['namespace', '/lifelong', 'life long']),
        ({'composed': 'maybe'}, ['composed', 'true or false', 'maybe']),
    ],
)
def test_a_bad_value_is_one_line_with_what_is_allowed(values, words):
    with pytest.raises(InvalidConfig) as caught:
        options_from(values)
    assert '\n' not in str(caught.value)
    assert all(word in str(caught.value) for word in words)


def test_an_unknown_argument_names_the_close_one_and_all_known():
    with pytest.raises(UnknownName, match=r"no argument 'siute'; did you mean 'suite'\?.*learner"):
        options_from({'siute': 'demo'})


@pytest.mark.parametrize('text', [None, 'a: [', '- 1', 'learner: {suite: demo}'])
def test_a_parameter_file_that_is_none_is_refused(tmp_path, text):
    path = tmp_path / 'p.yaml'
    if text is not None:
        path.write_text(text)
    with pytest.raises(InvalidConfig, match='params_file'):
        describe(GraphOptions(params_file=str(path)))


def test_every_option_of_the_graph_has_a_help_text():
    from dataclasses import fields

    assert all(item.metadata['help'] for item in fields(GraphOptions))


def test_every_node_parameter_has_a_help_text():
    from dataclasses import fields

    assert all(item.metadata['help'] for kind in NODES.values() for item in fields(kind))


@pytest.mark.parametrize(
    'wrong', [{'suite': 'demos'}, {'learner': 'lpgftw'}, {'tasks': '9'}, {'settings': 'nosuch=1'}]
)
def test_a_run_that_cannot_be_made_is_refused_before_anything_starts(wrong):
    require_run(GraphOptions())
    with pytest.raises(LpgftwError):
        require_run(options_from(wrong))


@pytest.mark.parametrize('namespace', ['/', '/lifelong', '/cell_1/arm'])
def test_any_namespace_gives_names_ros_takes(namespace, tmp_path):
    graph = describe(GraphOptions(namespace=namespace))
    assert graph.nodes[0] == f'{namespace.rstrip("/")}/sim_bridge'
    written = yaml.safe_load(Path(graph.write_parameters(tmp_path)).read_text())
    assert set(written) == set(graph.nodes)
    assert not any('//' in name for name in graph.nodes)


@pytest.mark.parametrize('namespace', ['', 'lifelong', '//', '/1st', '/a/'])
def test_a_namespace_ros_would_not_take_is_refused(namespace):
    with pytest.raises(InvalidConfig, match='namespace must be like'):
        GraphOptions(namespace=namespace)


def test_simulated_time_is_for_all_but_the_node_that_makes_it():
    graph = describe(GraphOptions(use_sim_time=True, publish_clock=True, scene=True))
    values = {node: p.parameters[node] for p in graph.processes for node in p.nodes}
    assert values['sim_bridge']['publish_clock'] is True
    simulated = {node for node, own in values.items() if own.get('use_sim_time')}
    assert simulated == {'policy', 'learner', 'scene'}


def test_the_topic_of_the_joints_can_be_named():
    graph = describe(GraphOptions(joint_states_topic='/joint_states'))
    assert all(p.remappings == (('joint_states', '/joint_states'),) for p in graph.processes)
