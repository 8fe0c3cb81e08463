"""Parameters as a ROS user meets them: described, changeable until they are read."""

from collections.abc import Iterator

from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
import pytest
from rcl_interfaces.srv import DescribeParameters, GetParameters, ListParameters, SetParameters
from rclpy.parameter import Parameter
import yaml

from .lifelong_graph import GraphClient, write_suite

pytestmark = [pytest.mark.ros, pytest.mark.slow]


class User(GraphClient):
    """Sets and gets the learner's parameters."""

    def names(self) -> list[str]:
        return list(self.call(ListParameters, 'learner/list_parameters').result.names)

    def get(self, name: str):
        answer = self.call(GetParameters, 'learner/get_parameters', names=[name])
        return Parameter.from_parameter_msg(_message(name, answer.values[0])).value

    def set(self, name: str, value) -> tuple[bool, str]:
        wanted = Parameter(name, value=value).to_parameter_msg()
        answer = self.call(SetParameters, 'learner/set_parameters', parameters=[wanted])
        return answer.results[0].successful, answer.results[0].reason

    def describe(self, name: str):
        answer = self.call(DescribeParameters, 'learner/describe_parameters', names=[name])
        return answer.descriptors[0]

    def change(self, transition: int) -> bool:
        wanted = Transition(id=transition)
        return self.call(ChangeState, 'learner/change_state', 60.0, transition=wanted).success


def _message(name, value):
    message = Parameter(name, value=0).to_parameter_msg()
    message.value = value
    return message


@pytest.fixture
def user(ros_domain) -> Iterator[User]:
    client = User('/')
    yield client
    client.close()


@pytest.fixture
def learner(node_process, user, tmp_path):
    """A learner that waits to be configured."""
    suite, out = write_suite(tmp_path), tmp_path / 'run'
    words = ['suite:=' + suite, f'out:={out}', 'autostart:=false', 'autotrain:=false']
    words += ['settings.max_kl:=0.02', "tasks:=['g-12', 'g-06']"]
    node = node_process('learner', *(word for pair in words for word in ('-p', pair)))
    assert user.until(lambda: '/learner' in _nodes(user), 120.0), node.output
    return node, out


def _nodes(user: User) -> list[str]:
    return [f'{space}{name}' for name, space in user.node.get_node_names_and_namespaces()]


def test_an_unconfigured_learner_can_be_changed_and_a_configured_one_says_what_to_do(
    learner, user
) -> None:
    node, out = learner
    assert user.get('settings.max_kl') == 0.02
    assert user.get('settings.gamma') == 0.995  # as the preset says
    assert list(user.get('tasks')) == ['g-12', 'g-06']
    described = user.describe('settings.max_kl')
    assert 'KL' in described.description
    assert (described.floating_point_range[0].from_value, described.read_only) == (1e-9, False)
    assert user.set('settings.gamma', 2.0)[0] is False  # out of its range
    assert user.set('settings.gamma', 0.9) == (True, '')
    assert user.set('iterations', 7) == (True, '')
    assert user.set('tasks', ['g-10']) == (True, '')
    assert user.set('settings.hidden', [8, 8]) == (True, '')
    assert user.change(Transition.TRANSITION_CONFIGURE), node.output
    done, reason = user.set('settings.gamma', 0.8)
    assert not done
    assert 'clean it up' in reason
    written = yaml.safe_load((out / 'config.yaml').read_text())
    assert (written['tasks'], written['hidden']) == (['g-10'], [8, 8])
    assert (written['method']['gamma'], written['method']['max_kl']) == (0.9, 0.02)
    assert written['loop']['iterations'] == 7


def test_the_settings_follow_the_learner(learner, user) -> None:
    node, _ = learner
    assert 'settings.max_columns' in user.names()
    assert user.set('learner', 'ewc') == (True, ''), node.output
    names = user.names()
    assert 'settings.max_columns' not in names
    assert 'settings.fisher_weight' in names or 'settings.ewc_weight' in names, names
    assert user.get('settings.max_kl') == 0.02  # it was said
    assert user.set('learner', 'nothing') == (True, '')  # refused when it is read
    assert not user.change(Transition.TRANSITION_CONFIGURE)
    assert 'no learner' in node.output
    assert user.set('learner', 'stl') == (True, '')
    assert user.change(Transition.TRANSITION_CONFIGURE), node.output
