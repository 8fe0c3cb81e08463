"""Pictures of a running graph on a machine without a display."""

from collections.abc import Iterator
from pathlib import Path

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
import numpy as np
import pytest
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter
from sensor_msgs.msg import Image

from lpgftw_ros.nodes import qos

from .lifelong_graph import GraphClient, metrics, options, write_suite

pytestmark = [pytest.mark.ros, pytest.mark.slow]


class Watcher(GraphClient):
    """Looks at the pictures and the health of the bridge."""

    def __init__(self) -> None:
        super().__init__()
        self.pictures: list[Image] = []
        self.health: dict[str, DiagnosticStatus] = {}
        self.node.create_subscription(DiagnosticArray, '/diagnostics', self._on_health, 10)

    def look(self) -> None:
        self.node.create_subscription(Image, 'image', self.pictures.append, qos.SENSOR)

    def draw_every(self, seconds: float) -> None:
        period = Parameter('image_period', value=seconds).to_parameter_msg()
        answer = self.call(SetParameters, 'sim_bridge/set_parameters', parameters=[period])
        assert answer.results[0].successful

    def _on_health(self, message: DiagnosticArray) -> None:
        self.health |= {status.name: status for status in message.status}

    @property
    def bridge(self) -> DiagnosticStatus:
        return self.health.get('/lifelong/sim_bridge: sim_bridge', DiagnosticStatus())


@pytest.fixture
def graph(start, tmp_path: Path, monkeypatch) -> Iterator[tuple[Watcher, object, Path]]:
    monkeypatch.delenv('MUJOCO_GL', raising=False)  # as under `ros2 launch`
    monkeypatch.delenv('DISPLAY', raising=False)
    suite, out = write_suite(tmp_path, horizon=100), tmp_path / 'run'
    up = start('--realtime-factor', '4.0', *options(suite, out, iterations=50))
    client = Watcher()
    assert client.until(lambda: len(metrics(out)) > 0, 120.0), up.output
    yield client, up, out
    client.close()
    up.stop()


def drawing(up) -> list[str]:
    """Return the processes below the bridge that draw."""
    found = []
    for bridge in up.children():
        for child in Path(f'/proc/{bridge}/task').glob('*/children'):
            for pid in child.read_text().split():
                words = Path(f'/proc/{pid}/cmdline').read_bytes().decode().split('\0')
                found += [pid] if 'lpgftw_ros.domains.rendering' in words else []
    return found


def test_pictures_are_drawn_for_whoever_looks_outside_the_bridge(graph) -> None:
    client, up, out = graph
    client.draw_every(0.1)
    client.until(lambda: False, 2.0)
    assert drawing(up) == []  # nobody looks
    client.look()
    assert client.until(lambda: len(client.pictures) > 2, 120.0), up.output
    picture = client.pictures[-1]
    pixels = np.frombuffer(bytes(picture.data), np.uint8)
    assert pixels.reshape(picture.height, picture.width, 3).std() > 10.0
    assert len(drawing(up)) == 1
    rows = len(metrics(out))
    assert client.until(lambda: len(metrics(out)) > rows), up.output


def test_without_opengl_pictures_are_off_with_a_diagnostic_and_learning_goes_on(
    monkeypatch, request
) -> None:
    monkeypatch.setenv('__EGL_VENDOR_LIBRARY_DIRS', '/nonexistent')
    client, up, out = request.getfixturevalue('graph')
    client.draw_every(0.1)
    client.look()
    assert client.until(lambda: 'no pictures' in client.bridge.message, 120.0), up.output
    assert client.bridge.level == DiagnosticStatus.WARN
    rows = len(metrics(out))
    assert client.until(lambda: len(metrics(out)) > rows + 2), up.output
    assert (client.pictures, drawing(up)) == ([], [])
    assert up.output.count('no pictures') == 1
