import os
from pathlib import Path
import signal
import time

from lifecycle_msgs.srv import GetState
import pytest
from rcl_interfaces.srv import DescribeParameters, GetParameters, SetParameters
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.parameter import Parameter
from rclpy.signals import SignalHandlerOptions

from lpgftw_ros.nodes.steering import Probe

pytestmark = pytest.mark.ros
NODES = ('/lifelong/sim_bridge', '/lifelong/policy', '/lifelong/learner')
QUIET = ('--no-autotrain', '--suite', 'demo')


def wait_until(condition, timeout=30.0, each=lambda: time.sleep(0.05)):
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        if condition():
            return True
        each()
    return False


class Client:
    """Calls services of the graph from outside."""

    def __init__(self):
        self._context = rclpy.Context()
        rclpy.init(context=self._context, signal_handler_options=SignalHandlerOptions.NO)
        self.node = rclpy.create_node('test_client', context=self._context)
        self.executor = SingleThreadedExecutor(context=self._context)
        self.executor.add_node(self.node)
        self.probe = Probe()
        self._clients = {}

    def call(self, kind, name, request, timeout=5.0):
        client = self._clients.get(name) or self.node.create_client(kind, name)
        self._clients[name] = client
        assert client.wait_for_service(timeout), f'no service {name}'
        future = client.call_async(request)
        self.executor.spin_until_future_complete(future, timeout)
        assert future.done(), f'{name} did not answer in {timeout} s'
        return future.result()

    def active(self, nodes=NODES, timeout=30.0, since=0.0):
        def all_active():
            reports = [self.probe.reports.get(name) for name in nodes]
            return all(r is not None and r.active and r.received > since for r in reports)

        return wait_until(all_active, timeout, lambda: self.probe.look(0.1))

    def restarted(self, node, old):
        self.probe.look(0.1)
        report = self.probe.reports[node]
        return report.active and int(report.values['pid']) != old

    def pids(self):
        return {name: int(self.probe.reports[name].values['pid']) for name in NODES}

    def close(self):
        self.probe.close()
        self.executor.shutdown()
        self.node.destroy_node()
        rclpy.try_shutdown(context=self._context)


@pytest.fixture(scope='module')
def client(ros_domain):
    client = Client()
    yield client
    client.close()


@pytest.fixture(scope='module')
def graph(start, client, tmp_path_factory):
    out = tmp_path_factory.mktemp('bringup') / 'run'
    up = start(*QUIET, '--out', str(out), '--seed', '7', '--realtime-factor', '2.5')
    assert client.active(), up.output
    return up


def parameters(client, node, *names):
    answer = client.call(
        GetParameters, f'{node}/get_parameters', GetParameters.Request(names=names)
    )
    return answer.values


def test_all_nodes_come_up_active(graph, client):
    states = [
        client.call(GetState, f'{node}/get_state', GetState.Request()).current_state.label
        for node in NODES
    ]
    assert states == ['active'] * 3


def test_options_reach_the_nodes_as_parameters(graph, client):
    seed = parameters(client, '/lifelong/learner', 'seed')[0].integer_value
    factor = parameters(client, '/lifelong/sim_bridge', 'realtime_factor')[0].double_value
    assert (seed, factor) == (7, 2.5)


def test_all_nodes_know_the_same_run(graph, client):
    runs = {parameters(client, node, 'run_id')[0].string_value for node in NODES}
    assert len(runs) == 1
    assert runs != {''}


def test_parameters_are_described_with_their_range(graph, client):
    request = DescribeParameters.Request(names=['realtime_factor'])
    answer = client.call(DescribeParameters, '/lifelong/sim_bridge/describe_parameters', request)
    described = answer.descriptors[0]
    assert 'simulated seconds' in described.description
    assert described.floating_point_range[0].to_value == 1000.0


def test_a_parameter_fixed_at_start_refuses_to_change(graph, client):
    change = Parameter('suite', value='mt10').to_parameter_msg()
    answer = client.call(
        SetParameters,
        '/lifelong/learner/set_parameters',
        SetParameters.Request(parameters=[change]),
    )
    assert not answer.results[0].successful


def test_diagnostics_name_node_process_and_run(graph, client):
    client.active()
    values = client.probe.reports['/lifelong/policy'].values
    assert values['state'] == 'active'
    assert int(values['pid']) in graph.children()


def test_a_killed_node_is_back_within_ten_seconds_and_the_others_stay(graph, client):
    assert client.active()
    before = client.pids()
    killed = time.monotonic()
    os.kill(before['/lifelong/policy'], signal.SIGKILL)
    while not client.restarted('/lifelong/policy', before['/lifelong/policy']):
        parameters(client, '/lifelong/sim_bridge', 'run_id')  # answers throughout
        parameters(client, '/lifelong/learner', 'run_id')
        assert time.monotonic() - killed < 10.0, graph.output
    assert client.active(since=time.monotonic())
    others = ('/lifelong/sim_bridge', '/lifelong/learner')
    assert [client.pids()[n] for n in others] == [before[n] for n in others]


def test_ctrl_c_ends_all_nodes_within_three_seconds_and_leaves_none(graph, client):
    pids = graph.children()
    assert len(pids) == 3
    started = time.monotonic()
    graph.process.send_signal(signal.SIGINT)
    assert wait_until(lambda: all(ended(pid) for pid in pids), 15.0, lambda: time.sleep(0.01))
    assert time.monotonic() - started < 3.0
    graph.stop()
    assert graph.process.returncode == 130
    assert 'in time' not in graph.output


def ended(pid):
    try:
        return Path(f'/proc/{pid}/stat').read_text().rsplit(')', 1)[1].split()[0] == 'Z'
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize('node', ['sim_bridge', 'policy', 'learner'])
@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_a_node_alone_ends_cleanly_on_a_signal(ros_domain, node, number, node_process):
    process = node_process(node, '-p', 'autostart:=false')
    assert process.up()
    seconds, code = process.stop(number)
    assert code == 0, process.output
    assert seconds < 3.0
    assert 'Traceback' not in process.output
