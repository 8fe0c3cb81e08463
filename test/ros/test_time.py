"""Simulated time: `/clock`, and the stamps of nodes that follow it."""

from collections.abc import Iterator
import time

import pytest
from rosgraph_msgs.msg import Clock

from lpgftw_interfaces.msg import Actions, LearningStatus, Observations
from lpgftw_ros.nodes import qos

from .lifelong_graph import GraphClient, options, write_suite

pytestmark = [pytest.mark.ros, pytest.mark.slow, pytest.mark.alone]
FASTEST = 80.0  # Hz
HORIZON, CONTROL_PERIOD = 200, 0.05


def seconds(stamp) -> float:
    return stamp.sec + 1e-9 * stamp.nanosec


class Listener(GraphClient):
    """Hears the clock and who follows it."""

    def __init__(self) -> None:
        super().__init__()
        self.ticks: list[tuple[float, float]] = []
        self.stamps: dict[str, list[float]] = {'observations': [], 'actions': [], 'status': []}
        subscribe = self.node.create_subscription
        subscribe(Clock, '/clock', self._on_clock, 500)
        for topic, kind in (('observations', Observations), ('actions', Actions)):
            subscribe(kind, topic, lambda m, t=topic: self._on(t, m.header.stamp), qos.LOCK_STEP)
        subscribe(LearningStatus, 'status', lambda m: self._on('status', m.stamp), 10)

    def _on_clock(self, message: Clock) -> None:
        self.ticks.append((time.monotonic(), seconds(message.clock)))

    def _on(self, topic: str, stamp) -> None:
        self.stamps[topic].append(seconds(stamp))


@pytest.fixture
def listener(ros_domain) -> Iterator[Listener]:
    client = Listener()
    yield client
    client.close()


def test_the_clock_only_grows_and_every_stamp_is_on_it(start, listener, tmp_path) -> None:
    suite = write_suite(tmp_path, horizon=HORIZON)
    up = start(
        '--publish-clock', '--use-sim-time', *options(suite, tmp_path / 'run', iterations=100)
    )
    assert listener.until(lambda: len(listener.ticks) > 20, 120.0), up.output
    began = time.monotonic()
    listener.until(lambda: False, 5.0)
    ticks = [(heard, told) for heard, told in listener.ticks if heard > began]
    told = [tick for _, tick in listener.ticks]
    assert told == sorted(told)
    assert len(set(told)) == len(told)
    assert len(ticks) <= 1.1 * FASTEST * 5.0
    passed = told[-1] - told[0]
    assert passed > 1.0
    for topic, stamps in listener.stamps.items():
        assert stamps, topic
        assert stamps == sorted(stamps), topic
        assert stamps[-1] <= told[-1] + HORIZON * CONTROL_PERIOD, topic  # not the wall's time
    up.stop()
