"""Every node through every path of up to four lifecycle transitions in the middle of training.

A run takes many paths one after the other, some followed by the death of another node, and must
end with the bytes of an undisturbed run. CI takes a sample; LPGFTW_LIFECYCLE=all takes them all.
"""

from collections.abc import Iterator
from itertools import product
import os
from pathlib import Path
import random
import time

from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
import pytest
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.signals import SignalHandlerOptions

from .lifelong_graph import GraphClient, kill, metrics, options, scores, train, write_suite

pytestmark = [pytest.mark.ros, pytest.mark.slow]
LEADS_TO = {
    'active': {'deactivate': 'inactive'},
    'inactive': {'activate': 'active', 'cleanup': 'unconfigured'},
    'unconfigured': {'configure': 'inactive'},
}
BACK = {'active': (), 'inactive': ('activate',), 'unconfigured': ('configure', 'activate')}
NUMBERS = {
    'configure': Transition.TRANSITION_CONFIGURE,
    'activate': Transition.TRANSITION_ACTIVATE,
    'deactivate': Transition.TRANSITION_DEACTIVATE,
    'cleanup': Transition.TRANSITION_CLEANUP,
}
LONGEST = 4
NODES = ('sim_bridge', 'policy', 'learner')
MOVES_PER_RUN = 9
ITERATIONS = 8
PACE = 4.0
"""Simulated seconds per second: slow enough that transitions meet rollouts in the middle."""

Path_ = tuple[str, ...]
Move = tuple[str, Path_, str]
"""A node, its transitions, and who is killed right after them ('': nobody)."""


def paths(state: str = 'active', longest: int = LONGEST) -> Iterator[tuple[Path_, str]]:
    """Return every path from a state with the state it ends in."""
    for transition, after in LEADS_TO[state].items() if longest else ():
        yield (transition,), after
        for rest, end in paths(after, longest - 1):
            yield (transition, *rest), end


def whole_set() -> list[Move]:
    """Return every path of every node, alone and followed by the death of another node."""
    there_and_back = [path + BACK[end] for path, end in paths()]
    moves = product(NODES, there_and_back, ('', *NODES))
    found = [move for move in moves if move[0] != move[2]]
    return found + [('scene', path, '') for path in there_and_back]


def sample() -> list[Move]:
    """Return few moves that still have every transition of every node."""
    longest = ('deactivate', 'cleanup', 'configure', 'activate')
    return [
        ('learner', longest, 'policy'),
        ('policy', longest, ''),
        ('sim_bridge', longest, ''),
        ('learner', ('deactivate', 'activate', 'deactivate', 'activate'), 'sim_bridge'),
        ('policy', ('deactivate', 'activate', 'deactivate', 'activate'), ''),
        ('sim_bridge', ('deactivate', 'activate', 'deactivate', 'activate'), 'learner'),
        ('scene', longest, ''),
        (
            'learner',
            ('deactivate', 'cleanup', 'configure', 'cleanup', 'configure', 'activate'),
            '',
        ),
    ]


def runs() -> list[tuple[Move, ...]]:
    if os.environ.get('LPGFTW_LIFECYCLE') != 'all':
        return [tuple(sample())]
    moves = whole_set()
    random.Random(5).shuffle(moves)
    return [tuple(moves[i : i + MOVES_PER_RUN]) for i in range(0, len(moves), MOVES_PER_RUN)]


class Steered(GraphClient):
    """Leads nodes through transitions."""

    def lead(self, node: str, path: Path_) -> None:
        for transition in path:
            answer = self.call(
                ChangeState, f'{node}/change_state', transition=Transition(id=NUMBERS[transition])
            )
            assert answer.success, f'{node} refused to {transition}'
            time.sleep(random.uniform(0.0, 0.2))
        assert self.call(GetState, f'{node}/get_state').current_state.label == 'active'

    def settle(self) -> None:
        """Wait until all nodes are there and active, also one that was just killed."""
        for node in (*NODES, 'scene'):
            assert self.until(lambda node=node: self._is_active(node), 120.0), f'{node} is away'

    def _is_active(self, node: str) -> bool:
        try:
            answer = self.call(GetState, f'{node}/get_state', 1.0)
        except AssertionError:  # it is starting
            return False
        return answer.current_state.label == 'active'


def makers() -> dict[str, type]:
    from lpgftw_ros.nodes.dashboard import Dashboard
    from lpgftw_ros.nodes.learner import Learner
    from lpgftw_ros.nodes.policy import Policy
    from lpgftw_ros.nodes.sawyer_sim import SawyerSim
    from lpgftw_ros.nodes.scene import Scene
    from lpgftw_ros.nodes.sim_bridge import SimBridge

    kinds = (SimBridge, Policy, Learner, Scene, Dashboard, SawyerSim)
    return {kind.__name__: kind for kind in kinds}


@pytest.mark.parametrize(
    'name', ['SimBridge', 'Policy', 'Learner', 'Scene', 'Dashboard', 'SawyerSim']
)
def test_a_node_alone_takes_every_path(ros_domain, tmp_path, name) -> None:
    said = [f'out:={tmp_path}/run', 'autostart:=false', 'autotrain:=false', 'dashboard_port:=0']
    words = [word for pair in said for word in ('-p', pair)]
    rclpy.init(args=['--ros-args', *words], signal_handler_options=SignalHandlerOptions.NO)
    node = makers()[name]()
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    try:
        for transition in ('configure', 'activate'):
            getattr(node, f'trigger_{transition}')()
        for path, end in paths():
            for transition in path:
                getattr(node, f'trigger_{transition}')()
                executor.spin_once(timeout_sec=0.01)
            assert node.state == end, path
            for transition in BACK[end]:
                getattr(node, f'trigger_{transition}')()
            assert node.state == 'active', path
        node.trigger_shutdown()
        assert node.state == 'finalized'
    finally:
        node.destroy_node()
        rclpy.try_shutdown()


@pytest.fixture(scope='module')
def undisturbed(tmp_path_factory) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp('lifecycle')
    suite = write_suite(folder)
    train(options(suite, folder / 'train', iterations=ITERATIONS))
    return suite, folder / 'train'


@pytest.mark.parametrize('composed', [False, True], ids=['processes', 'composed'])
@pytest.mark.parametrize('moves', runs(), ids=lambda moves: f'{moves[0][0]}-{len(moves)}')
def test_the_run_ends_with_the_same_bytes(start, tmp_path, undisturbed, moves, composed) -> None:
    suite, reference = undisturbed
    out = tmp_path / 'run'
    words = [*options(suite, out, iterations=ITERATIONS), '--realtime-factor', str(PACE)]
    up = start('--composed' if composed else '--no-composed', '--scene', *words)
    client = Steered()
    try:
        for node, path, dies in moves:
            client.settle()
            rows = len(metrics(out))
            grown = client.until(lambda rows=rows: len(metrics(out)) > rows, 60.0)
            assert grown, f'nothing is learned before {node} {path}:\n{up.output[-3000:]}'
            client.lead(node, path)
            if dies:
                host = 'composed' if composed and dies != 'learner' else dies
                assert kill(up, host), f'{host} was not there'
        assert up.process.poll() is None, 'the run ended before all moves were made'
        assert up.process.wait(180) == 0, up.output[-3000:]
    finally:
        client.close()
        up.stop()
    assert metrics(out) == metrics(reference)
    assert scores(out) == scores(reference)
