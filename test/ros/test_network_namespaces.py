"""Localhost means localhost: who shares only the network, not the machine, is not heard."""

from collections.abc import Iterator
import os
import subprocess
import sys
import time

import pytest

pytestmark = [pytest.mark.ros, pytest.mark.slow]
HERE, THERE = '10.213.7.1', '10.213.7.2'
SECONDS = 10.0
TALKER = """
import sys, time
from lpgftw_ros.nodes.process import follow_environment
follow_environment()
import rclpy
from std_msgs.msg import String
rclpy.init()
node = rclpy.create_node(sys.argv[1])
publisher = node.create_publisher(String, 'names', 10)
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    publisher.publish(String(data=sys.argv[1]))
    rclpy.spin_once(node, timeout_sec=0.05)
"""
LISTENER = """
import collections, sys, time
from lpgftw_ros.nodes.process import follow_environment
follow_environment()
import rclpy
from std_msgs.msg import String
rclpy.init()
node = rclpy.create_node('listener')
heard = collections.Counter()
node.create_subscription(String, 'names', lambda m: heard.update([m.data]), 10)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    rclpy.spin_once(node, timeout_sec=0.05)
print(heard['local'], heard['foreign'])
"""


class Network:
    """Two network namespaces with a cable between them."""

    def __init__(self) -> None:
        self._keepers = [
            subprocess.Popen(['unshare', '--net', 'sleep', '600']) for _ in (HERE, THERE)
        ]
        time.sleep(0.5)
        ours, theirs = (str(keeper.pid) for keeper in self._keepers)
        link = ['ip', 'link', 'add', 'lpg0', 'netns', ours, 'type', 'veth']
        self._do([*link, 'peer', 'name', 'lpg0', 'netns', theirs])
        for side, address in enumerate((HERE, THERE)):
            self._do([*self.within(side), 'ip', 'address', 'add', f'{address}/24', 'dev', 'lpg0'])
            for device in ('lo', 'lpg0'):
                self._do([*self.within(side), 'ip', 'link', 'set', device, 'up'])

    @staticmethod
    def _do(words: list[str]) -> None:
        subprocess.run(words, check=True, capture_output=True)

    def within(self, side: int) -> list[str]:
        """Return the words before a command that is to run on one side."""
        return ['nsenter', '--target', str(self._keepers[side].pid), '--net']

    def start(self, side: int, script: str, *words: str, **environment: str) -> subprocess.Popen:
        return subprocess.Popen(
            [*self.within(side), sys.executable, '-c', script, *words],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        for keeper in self._keepers:
            keeper.kill()
            keeper.wait()


@pytest.fixture
def network(ros_domain: int) -> Iterator[Network]:
    try:
        network = Network()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f'no network namespaces here: {error}')
    yield network
    network.close()


def heard(network: Network, **ours: str) -> tuple[int, int]:
    """Return how many messages of a local and of a foreign talker one of us hears."""
    open_to_all = {'ROS_AUTOMATIC_DISCOVERY_RANGE': 'SUBNET', 'ROS_STATIC_PEERS': HERE}
    listener = network.start(0, LISTENER, str(SECONDS), **ours)
    talkers = [
        network.start(0, TALKER, 'local', str(SECONDS), **ours),
        network.start(1, TALKER, 'foreign', str(SECONDS), **open_to_all),
    ]
    out, _ = listener.communicate(timeout=60)
    for talker in talkers:
        talker.wait(60)
    local, foreign = (int(word) for word in out.split())
    return local, foreign


@pytest.mark.parametrize('udp_only', ['', '1'])
def test_on_localhost_nobody_else_is_heard(network: Network, udp_only: str) -> None:
    ours = {'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST', 'LPGFTW_UDP_ONLY': udp_only}
    local, foreign = heard(network, **ours)
    assert local > 10
    assert foreign == 0


def test_a_graph_that_is_opened_hears_others(network: Network) -> None:
    local, foreign = heard(network, ROS_AUTOMATIC_DISCOVERY_RANGE='SUBNET')
    assert local > 10
    assert foreign > 10


WAITS = """
import subprocess, threading, time
from lpgftw_ros.nodes.process import wait_for_loopback
threading.Timer(1.0, subprocess.run, [['ip', 'link', 'set', 'lo', 'up']]).start()
began = time.monotonic()
wait_for_loopback()
print(time.monotonic() - began)
"""


def test_a_node_starts_only_when_its_loopback_is_up(network: Network) -> None:
    subprocess.run([*network.within(0), 'ip', 'link', 'set', 'lo', 'down'], check=True)
    out, _ = network.start(0, WAITS).communicate(timeout=60)
    assert 0.9 < float(out) < 10.0
