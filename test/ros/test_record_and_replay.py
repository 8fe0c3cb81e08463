"""A bag of a rollout, recorded as documented, replayed to a policy node: the same actions.

rosbag2 comes with a ROS installation only; the `rosbags` library reads and writes its files.
"""

from itertools import islice
from pathlib import Path
import re
import signal
import time

import pytest
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.serialization import deserialize_message
from rosbags.rosbag2 import Reader, StoragePlugin, Writer
from rosbags.typesys import get_types_from_msg, get_typestore, Stores

from lpgftw_interfaces import msg
from lpgftw_ros.nodes import qos

from .lifelong_graph import GraphClient, options, write_suite

pytestmark = [pytest.mark.ros, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[2]
RUN, SECRET = 'bag', 'said by the one who records'
KINDS = {
    'observations': msg.Observations,
    'actions': msg.Actions,
    'knowledge': msg.Knowledge,
    'task_policy': msg.TaskPolicy,
}
LATCHED = ('knowledge', 'task_policy')


def typestore():
    """Return the messages of Jazzy and ours, as rosbags knows them."""
    store = get_typestore(Stores.ROS2_JAZZY)
    for path in sorted((ROOT / 'lpgftw_interfaces' / 'msg').glob('*.msg')):
        store.register(get_types_from_msg(path.read_text(), f'lpgftw_interfaces/msg/{path.stem}'))
    return store


class Recorder:
    """Writes what comes on the topics of a bag, untouched, as `ros2 bag record` does."""

    def __init__(self, client: GraphClient, path: Path) -> None:
        self._writer = Writer(path, version=9, storage_plugin=StoragePlugin.MCAP)
        self._writer.open()
        self.count = dict.fromkeys(KINDS, 0)
        store = typestore()
        for topic, kind in KINDS.items():
            name = f'lpgftw_interfaces/msg/{kind.__name__}'
            connection = self._writer.add_connection(f'/lifelong/{topic}', name, typestore=store)
            client.node.create_subscription(
                kind,
                topic,
                lambda raw, t=topic, c=connection: self._write(t, c, raw),
                QoSProfile(
                    depth=1000,
                    reliability=ReliabilityPolicy.RELIABLE,
                    durability=DurabilityPolicy.TRANSIENT_LOCAL
                    if topic in LATCHED
                    else DurabilityPolicy.VOLATILE,
                ),
                raw=True,
            )

    def _write(self, topic: str, connection: object, raw: bytes) -> None:
        self._writer.write(connection, time.time_ns(), raw)
        self.count[topic] += 1

    def has_enough(self) -> bool:
        """Return whether the bag holds some questions, their answers and policies."""
        least = {'observations': 600, 'actions': 600, 'knowledge': 1, 'task_policy': 2}
        return all(self.count[topic] >= n for topic, n in least.items())

    def settles(self, client: GraphClient) -> bool:
        """Return whether nothing more comes."""
        before = dict(self.count)
        for _ in range(20):
            client.spin(0.02)
        return self.count == before

    def close(self) -> None:
        self._writer.close()


@pytest.fixture(scope='module')
def bag(start, tmp_path_factory):
    """Record a run from the moment its nodes are found until there is enough; stop it."""
    folder = tmp_path_factory.mktemp('bag')
    patch = pytest.MonkeyPatch()
    patch.setenv('LPGFTW_SECRET', SECRET)
    client = GraphClient()
    recorder = Recorder(client, folder / 'run1')
    words = [*options(write_suite(folder), folder / 'run', iterations=1000), '--tasks', '1']
    up = start(*words, '--run-id', RUN)
    assert client.until(recorder.has_enough, 180.0), (recorder.count, up.output)
    up.process.send_signal(signal.SIGINT)
    assert client.until(lambda: up.process.poll() is not None, 60.0), up.output
    client.until(lambda: recorder.settles(client), 30.0)  # what waits is still written
    client.close()
    recorder.close()
    yield folder / 'run1', recorder.count
    patch.undo()


def read(path):
    """Return the messages of a bag by topic."""
    found = {topic: [] for topic in KINDS}
    with Reader(path) as reader:
        for connection, _, raw in reader.messages():
            topic = connection.topic.removeprefix('/lifelong/')
            found[topic].append(deserialize_message(raw, KINDS[topic]))
    return found


def place(message):
    return message.key.rollout, message.first, message.step


def test_a_replayed_bag_gives_the_same_actions(bag, node_process):
    path, count = bag
    recorded = read(path)
    assert {topic: len(found) for topic, found in recorded.items()} == count
    answered = {place(m): m for m in recorded['actions']}
    policies = {m.version: m for m in recorded['task_policy']}
    bases = {m.version: m for m in recorded['knowledge']}
    # A recorder that is late misses messages, here as with `ros2 bag`: replay what it has whole.
    # An observation that was not answered in time is in it twice.
    asked = {
        place(m): m
        for m in recorded['observations']
        if place(m) in answered
        and m.key.knowledge_version in bases
        and m.key.policy_version in (0, *policies)
    }
    assert len(asked) > 50
    asked = dict(islice(asked.items(), 300))
    node = node_process('policy', '-r', '__ns:=/lifelong', '-p', f'run_id:={RUN}')
    client = GraphClient()
    publish = {
        topic: client.node.create_publisher(
            kind, topic, qos.LATCHED if topic in LATCHED else qos.LOCK_STEP
        ).publish
        for topic, kind in KINDS.items()
        if topic != 'actions'
    }
    answers = {}
    client.node.create_subscription(
        msg.Actions, 'actions', lambda m: answers.update({place(m): m}), qos.LOCK_STEP
    )
    playing = (None, None)
    for question in asked.values():
        versions = (question.key.knowledge_version, question.key.policy_version)
        if versions != playing:
            playing = versions
            publish['knowledge'](bases[versions[0]])
            if versions[1]:
                publish['task_policy'](policies[versions[1]])
        before, tries = len(answers), 0
        while len(answers) == before and tries < 120:
            tries += 1
            publish['observations'](question)
            client.until(lambda before=before: len(answers) > before, 0.5)
        assert place(question) in answers, node.output
    client.close()
    different = [where for where, m in answers.items() if m.data != answered[where].data]
    assert different == []
    assert len(answers) == len(asked)


def test_the_documented_set_of_topics_suffices():
    """What the replay needs is what docs/ros.md tells people to record."""
    text = (ROOT / 'docs' / 'ros.md').read_text()
    command = re.search(r'ros2 bag record(?:[^\n\\]|\\\n)*', text)[0]
    assert all(f'/lifelong/{topic}' in command for topic in KINDS)
