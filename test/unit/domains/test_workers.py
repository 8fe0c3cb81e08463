"""Worker processes: they end with their parent, and their end is an error, not a hang."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from lpgftw_ros.domains.metaworld.env import MetaWorldVectorEnv
from lpgftw_ros.domains.workers import Workers
from lpgftw_ros.domains.workers.main import map_block, new_block
from lpgftw_ros.domains.workers.processes import WorkerDied, WorkerProcesses
from lpgftw_ros.errors import InvalidConfig, SimulationFailed

LAYOUT = (('values', 'float64', (4, 2)), ('marks', 'bool', (4,)))


def is_running(pid: int) -> bool:
    try:
        with open(f'/proc/{pid}/stat') as file:
            return file.read().rsplit(')', 1)[1].split()[0] != 'Z'
    except FileNotFoundError:
        return False


def wait_until_gone(pids):
    deadline = time.monotonic() + 30.0
    while any(is_running(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(is_running(pid) for pid in pids)


@pytest.fixture(scope='module')
def pool():
    pool = Workers(2)
    yield pool
    pool.close()


@pytest.fixture
def own_pool():
    pool = Workers(2)
    yield pool
    pool.close()


def running(pool: Workers) -> WorkerProcesses:
    return pool.shared('processes', WorkerProcesses)


def reach(pool: Workers) -> MetaWorldVectorEnv:
    env = MetaWorldVectorEnv('reach', 4, pool=pool)
    env.reset(seed=0)
    return env


def test_a_block_is_seen_through_both_mappings():
    descriptor = new_block(LAYOUT)
    one, two = map_block(descriptor, LAYOUT), map_block(descriptor, LAYOUT)
    os.close(descriptor)
    one['values'][2, 1], one['marks'][3] = 5.0, True
    assert two['values'][2, 1] == 5.0
    assert two['marks'].tolist() == [False, False, False, True]


def test_environments_share_the_workers(pool):
    reach(pool)
    pids = running(pool).pids
    MetaWorldVectorEnv('drawer-close', 4, pool=pool).reset(seed=0)
    assert running(pool).pids == pids


def test_a_worker_loads_no_torch(pool):
    reach(pool)
    with open(f'/proc/{running(pool).pids[0]}/maps') as file:
        assert 'torch' not in file.read()


def test_a_killed_worker_is_an_error_and_the_next_environment_works(own_pool):
    env = reach(own_pool)
    dead, left = running(own_pool).pids
    os.kill(dead, signal.SIGKILL)
    wait_until_gone([dead])
    with pytest.raises(WorkerDied, match='SIGKILL'):
        env.step(np.zeros((4, 4)))
    with pytest.raises(WorkerDied, match='gone'):
        env.step(np.zeros((4, 4)))
    assert wait_until_gone([left])
    env.close()
    assert reach(own_pool).step(np.zeros((4, 4)))[0].shape == (4, 6)
    pids = running(own_pool).pids
    own_pool.close()
    assert wait_until_gone(pids)


def test_a_thread_that_waits_for_its_workers_can_be_interrupted(own_pool):
    problems = []

    def build():
        try:
            while True:
                reach(own_pool).close()
        except SimulationFailed as error:
            problems.append(error)

    builder = threading.Thread(target=build)
    builder.start()
    while not running(own_pool).pids:
        time.sleep(0.01)
    time.sleep(0.2)
    own_pool.interrupt()
    builder.join(30.0)
    assert len(problems) == 1
    assert isinstance(problems[0], WorkerDied)


def test_an_error_in_a_worker_comes_back_with_its_text(pool):
    processes = running(pool)
    with pytest.raises(SimulationFailed, match='no_such_module'):
        processes.host('no_such_module:Rows', 4, LAYOUT, {})


def test_workers_end_when_their_parent_is_killed():
    code = (
        'from lpgftw_ros.domains.metaworld.env import MetaWorldVectorEnv\n'
        'from lpgftw_ros.domains.workers import Workers\n'
        'from lpgftw_ros.domains.workers.processes import WorkerProcesses\n'
        'import time\n'
        'pool = Workers(2)\n'
        'MetaWorldVectorEnv("reach", 4, pool=pool).reset()\n'
        'print(*pool.shared("processes", WorkerProcesses).pids, flush=True)\n'
        'time.sleep(600)\n'
    )
    with subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE) as parent:
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        parent.kill()
    assert len(pids) == 2
    assert wait_until_gone(pids)


def test_a_pool_needs_a_worker():
    with pytest.raises(InvalidConfig, match='at least 1'):
        WorkerProcesses(0)
