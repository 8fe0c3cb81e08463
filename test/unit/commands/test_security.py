"""Permissions from the description of a graph: complete, and no more than needed."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from lpgftw_ros.cli import main
from lpgftw_ros.commands.security import GRAPHS, launch_values, policy, RULES
from lpgftw_ros.graph.admission import ENDPOINTS, INTERNAL, talkers
from lpgftw_ros.graph.supervisor import command_of

ARM = ['limits_file:=limits.yaml', 'policy_file:=reach.policy']
CASES = {
    'lifelong': ['scene:=true', 'dashboard:=true'],
    'lifelong composed': ['composed:=true', 'namespace:=/lab/one'],
    'deploy': ARM,
    'deploy rehearse': ['rehearse:=true', 'reward:=reach', 'dashboard:=true'],
    'deploy servo': [*ARM, 'controller:=moveit_servo', 'gripper:=gripper_command'],
}


def written(case: str) -> ElementTree.Element:
    return policy(GRAPHS[case.split()[0]](launch_values(CASES[case])))


def allowed(root: ElementTree.Element, kind: str) -> dict[str, set[str]]:
    """Return by enclave the names for which it has a right."""
    several, one, right = RULES[kind]
    return {
        enclave.get('path', ''): {
            str(entry.text)
            for rule in enclave.iter(several)
            if rule.get(right) == 'ALLOW'
            for entry in rule.iter(one)
        }
        for enclave in root.iter('enclave')
    }


@pytest.mark.parametrize('case', CASES)
def test_every_process_has_the_enclave_it_is_started_with(case: str) -> None:
    graph = GRAPHS[case.split()[0]](launch_values(CASES[case]))
    paths = {enclave.get('path') for enclave in policy(graph).iter('enclave')}
    for process in graph.processes:
        words = command_of(process, 'parameters.yaml', False).words
        assert words[words.index('--enclave') + 1] == process.enclave
        assert process.enclave in paths
        assert process.ros_arguments()[:2] == ['--enclave', process.enclave]  # launch files


@pytest.mark.parametrize(
    ('case', 'topics'),
    [
        ('deploy', ('/lifelong/joint_velocity_command', '/lifelong/gripper_command')),
        ('deploy rehearse', ('/lifelong/joint_velocity_command', '/lifelong/gripper_command')),
        ('deploy servo', ('/servo_node/delta_twist_cmds',)),
    ],
)
def test_only_the_guard_may_write_to_the_arm(case: str, topics: tuple[str, ...]) -> None:
    publishes = allowed(written(case), 'publishes')
    for topic in topics:
        writers = [path for path, names in publishes.items() if topic in names]
        assert writers == ['/lifelong/safety_guard']
    assert not any('*' in name for names in publishes.values() for name in names)


def test_only_the_guard_may_close_the_gripper_and_the_arm_executes_it() -> None:
    root, action = written('deploy servo'), '/gripper_controller/gripper_cmd'
    calls, executes = allowed(root, 'calls'), allowed(root, 'executes')
    assert [path for path, names in calls.items() if action in names] == ['/lifelong/safety_guard']
    assert [path for path, names in executes.items() if action in names] == ['/lifelong/arm']


@pytest.mark.parametrize('case', CASES)
def test_people_watch_and_ask_and_publish_on_no_topic_of_the_graph(case: str) -> None:
    root = written(case)
    publishes = allowed(root, 'publishes')
    (operator,) = [path for path in publishes if path.endswith('/operator')]
    assert publishes[operator] == {'/rosout', '/parameter_events'}
    served = set().union(*(names for names in allowed(root, 'serves').values()))
    assert allowed(root, 'requests')[operator] == served


def test_internal_topics_have_the_publishers_nodes_look_for() -> None:
    assert set(INTERNAL) <= {name for ends in ENDPOINTS.values() for name in ends.publishes}
    assert talkers('knowledge') == ('learner',)
    assert talkers('arm_command') == ('arm_bridge',)


@pytest.mark.parametrize('case', CASES)
def test_the_file_has_the_form_of_sros2(case: str, tmp_path: Path) -> None:
    graph, *words = [case.split()[0], *CASES[case]]
    assert main(['security', str(tmp_path), graph, *words]) == 0
    root = ElementTree.parse(tmp_path / 'policy.xml').getroot()
    assert (root.tag, root.get('version')) == ('policy', '0.2.0')
    assert [child.tag for child in root] == ['enclaves']
    lists = {several: one for several, one, _ in RULES.values()}
    rights = {several: {r for s, _, r in RULES.values() if s == several} for several in lists}
    for profile in root.iter('profile'):
        assert set(profile.attrib) == {'ns', 'node'}
        for rule in profile:
            assert set(rule.attrib) <= rights[rule.tag]
            assert set(rule.attrib.values()) == {'ALLOW'}
            assert rule
            assert {entry.tag for entry in rule} == {lists[rule.tag]}


@pytest.mark.parametrize('case', CASES)
def test_the_file_is_valid_for_sros2(case: str, tmp_path: Path) -> None:
    sros2 = pytest.importorskip('sros2.policy', reason='sros2 is not installed: no schema here')
    assert main(['security', str(tmp_path), case.split()[0], *CASES[case]]) == 0
    tree = sros2.load_policy(tmp_path / 'policy.xml')
    assert len(tree.findall('enclaves/enclave')) >= 3


def test_arguments_are_those_of_the_launch_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(['security', str(tmp_path), 'lifelong', 'composed=true']) == 2
    assert 'NAME:=VALUE' in capsys.readouterr().err
    assert main(['security', str(tmp_path), 'lifelong', 'namespaze:=/a']) == 2
    assert "did you mean 'namespace'" in capsys.readouterr().err
    assert main(['security', str(tmp_path), 'deploy']) == 2
    assert 'limits_file is required' in capsys.readouterr().err
