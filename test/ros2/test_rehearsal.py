"""Rehearsals on the simulated arm with the real `ros2 launch` and the limits that are shipped.

Ten episodes undisturbed must not latch the guard. Ten more while `ros2` commands join list each
latch with the age of the input it names and what the machine did to the nodes just before. With
LPGFTW_TRANSCRIPT=FILE the list is written there; with LPGFTW_POLICY=FILE the arm is driven by that
exported policy of `reach` instead of one written by hand.
"""

import os
from pathlib import Path
import re
import threading
import time

import pytest

from .shell import needs_ros2, PATIENCE, record, Shell

pytestmark = [needs_ros2, pytest.mark.timeout(1800)]
SPACE = '/rehearsed'
EPISODES = int(os.environ.get('LPGFTW_EPISODES', '10'))
JOINING = 20
NODES = ('safety_guard', 'arm_bridge', 'sawyer_sim', 'policy')
LOOK = 0.05  # s between two looks at the kernel's accounts
BEFORE = 1.0  # s before a latch that are looked at
TICKS = os.sysconf('SC_CLK_TCK')
COMMANDS = (
    'ros2 node list',
    'ros2 topic list',
    f'ros2 topic echo --once {SPACE}/safety_state',
    f'ros2 param get {SPACE}/safety_guard rate',
    f'ros2 lifecycle get {SPACE}/arm_bridge',
)


class Machine:
    """What the machine did to the nodes, from the kernel's own accounts.

    For each thread the time it waited for a processor, beside it what all other processes used of
    the processors and what was stolen from this virtual machine.
    """

    def __init__(self, launch):
        self._pids = {}
        for pid in launch.descendants():
            words = Path(f'/proc/{pid}/cmdline').read_bytes().decode().split('\0')
            node = next((n for n in NODES if any(word.endswith(f'/{n}') for word in words)), '')
            if node:
                self._pids[node] = pid
        self._seen = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self):
        while not self._end.wait(LOOK):
            waited = {node: self._waited(pid) for node, pid in self._pids.items()}
            used = sum(self._used(pid) for pid in self._pids.values())
            busy, stolen = self._busy_and_stolen()
            now = {'waited': waited, 'others': busy - used, 'stolen': stolen}
            self._seen = [*self._seen[-200:], (time.time(), now)]

    @staticmethod
    def _waited(pid):
        found = {}
        for path in Path(f'/proc/{pid}/task').glob('*/schedstat'):
            try:
                found[path.parent.name] = int(path.read_text().split()[1]) / 1e9
            except (OSError, IndexError):
                continue
        return found

    @staticmethod
    def _used(pid):
        try:
            words = Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()
        except OSError:
            return 0.0
        return (int(words[11]) + int(words[12])) / TICKS

    @staticmethod
    def _busy_and_stolen():
        words = Path('/proc/stat').read_text().split('\n', 1)[0].split()[1:]
        user, nice, system, _, _, interrupt, soft, stolen = (int(word) for word in words[:8])
        return (user + nice + system + interrupt + soft) / TICKS, stolen / TICKS

    def before(self, moment):
        """Tell what happened in the second before a moment."""
        inside = [now for when, now in self._seen if moment - BEFORE <= when <= moment]
        if len(inside) < 2:
            return ''
        first, last = inside[0], inside[-1]
        waits = []
        for node, threads in last['waited'].items():
            grown = [s - first['waited'][node].get(name, 0.0) for name, s in threads.items()]
            waits.append(
                f'{node} {1e3 * sum(grown):.0f} ms ({1e3 * max(grown):.0f} in one thread)'
            )
        others, stolen = (1e3 * (last[what] - first[what]) for what in ('others', 'stolen'))
        return (
            f'waited for a processor in the second before: {", ".join(waits)}; '
            f'other processes used {others:.0f} ms, stolen {stolen:.0f} ms'
        )

    def close(self):
        self._end.set()
        self._thread.join()


class Rehearsal:
    """A launched cell, its guard's states and its episodes."""

    def __init__(self, folder, policy):
        self.shell = Shell(folder)
        self.launch = self.shell.start(
            f'ros2 launch lpgftw_ros deploy.launch.py rehearse:=true namespace:={SPACE} '
            f'policy_file:={policy} reward:=reach joint_noise:=0.0016 object_noise:=0.001'
        )
        self.states = self.machine = None
        self.latches = []
        self._read = 0

    def begin(self):
        """Bring the arm side up by hand, as docs/deploy.md says, and start the episodes."""
        assert self.launch.until('policies from'), self.launch.output
        self.set('safety_guard', 'configure')
        self.set('arm_bridge', 'configure')
        self.states = self.shell.start(f'ros2 topic echo {SPACE}/safety_state')
        self.machine = Machine(self.launch)
        self.set('safety_guard', 'activate')
        self.set('arm_bridge', 'activate')
        self.call('arm_bridge/run')

    def set(self, node, transition):
        """Type a transition, again while the node is starting."""
        for _ in range(10):
            code, output, _ = self.shell.run(f'ros2 lifecycle set {SPACE}/{node} {transition}')
            if code == 0 and 'successful' in output:
                return
            time.sleep(1.0)
        raise AssertionError(output + self.launch.output)

    def call(self, service):
        """Type a call, again while it is refused: on a busy machine inputs are late."""
        for _ in range(10):
            code, output, _ = self.shell.run(
                f'ros2 service call {SPACE}/{service} std_srvs/srv/Trigger'
            )
            assert code == 0, output
            if 'success=True' in output:
                return
            time.sleep(1.0)
        raise AssertionError(output + self.launch.output)

    @property
    def episodes(self):
        return len(re.findall(r'\]: episode \d+:', self.launch.output))

    def new_latches(self):
        """Note the latches that were told since the last look."""
        found = []
        for text in self.states.output.split('\n---')[self._read :]:
            told = dict(re.findall(r'^(\w+): *(.*)$', text, re.M))
            if 'count' not in told:
                break  # not whole yet
            self._read += 1
            since = re.search(r'since:\n  sec: (\d+)\n  nanosec: (\d+)', text)
            moment = int(since[1]) + int(since[2]) / 1e9
            if told['level'] == '3' and moment not in [latch[0] for latch in self.latches]:
                self.latches.append((moment, told, self.machine.before(moment)))
                found.append(told)
        return found

    def go_on(self):
        """Do what a person does after a latch."""
        time.sleep(1.0)
        self.call('safety_guard/reset')
        self.call('arm_bridge/run')

    def until_episode(self, wanted):
        end = time.monotonic() + wanted * 60.0
        while self.episodes < wanted:
            assert time.monotonic() < end, self.launch.output[-3000:]
            if self.new_latches():
                self.go_on()
            time.sleep(0.2)
        self.new_latches()

    def report(self, title):
        lines = [f'# {title}: {self.episodes} episodes, {len(self.latches)} latches']
        for _, told, machine in self.latches:
            age = f'{told["value"]} {told["unit"]} (limit {told["limit"]})'
            lines.append(f'  {told["code"]}: {age}; {machine}')
        record('\n'.join(lines) + '\n')
        return '\n'.join(lines)

    def close(self):
        if self.machine:
            self.machine.close()
            self.states.interrupt()
        assert self.launch.interrupt() == 0, self.launch.output[-3000:]


def simple_policy(path):
    """Write a policy that moves the hand to the goal; nothing was learned."""
    import numpy as np

    from lpgftw_ros.deploy.export import export_policy, save_policy
    from lpgftw_ros.deploy.observation import ControlSettings
    from lpgftw_ros.learning.policies import PolicySnapshot, PolicySpec

    goal = np.array([[-0.1], [0.8], [0.245]])
    moves = np.hstack([-10.0 * np.eye(3), np.zeros((3, 3)), 10.0 * goal])
    theta = np.vstack([moves, [0, 0, 0, 0, 0, 0, -1.0]]).ravel()
    policy = PolicySnapshot(PolicySpec(6, 4), theta, np.zeros(0), np.full(4, -3.0))
    save_policy(export_policy(policy, 'reach', ControlSettings(), {}), path)
    return path


@pytest.fixture
def rehearsal(tmp_path):
    exported = os.environ.get('LPGFTW_POLICY')
    rehearsal = Rehearsal(tmp_path, exported or simple_policy(tmp_path / 'reach.policy'))
    try:
        rehearsal.begin()
        yield rehearsal
    finally:
        rehearsal.close()


def test_undisturbed_episodes_latch_nothing(rehearsal):
    rehearsal.until_episode(EPISODES)
    print(rehearsal.report('undisturbed'))
    assert rehearsal.latches == [], rehearsal.report('undisturbed')
    assert 'success 100%' in rehearsal.launch.output


def test_each_latch_beside_joining_commands_is_accounted_for(rehearsal):
    done = []

    def join():
        for number in range(JOINING):
            done.append(rehearsal.shell.run(COMMANDS[number % len(COMMANDS)])[0])
            time.sleep(2.0)

    joining = threading.Thread(target=join)
    joining.start()
    rehearsal.until_episode(EPISODES)
    joining.join(PATIENCE * 2)
    print(rehearsal.report(f'{JOINING} joining commands'))
    assert done == [0] * JOINING
    for moment, told, machine in rehearsal.latches:
        assert told['code'].startswith(('stale', 'tracking', 'clock')), told
        assert machine, moment
