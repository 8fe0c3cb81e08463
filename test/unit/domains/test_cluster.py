"""Sampling on a real Ray cluster: three nodes on this machine, one of them killed at work."""

import json
import logging
import os
import secrets
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from safetensors.numpy import load_file

from lpgftw_ros.arithmetic import PINS
from lpgftw_ros.cli import main
from lpgftw_ros.domains import cluster as module
from lpgftw_ros.domains.cluster import Cluster, ClusterSampler, greeting, LOCAL
from lpgftw_ros.domains.sampler import Sampler
from lpgftw_ros.domains.suites import load_suite, Suite, TaskSpec
from lpgftw_ros.errors import InvalidConfig, LpgftwError, SimulationFailed
from lpgftw_ros.experiments.sweep import RayTasks
from lpgftw_ros.learning.policies import PolicySnapshot, PolicySpec

NODE = {'num_cpus': 1, 'object_store_memory': 80 << 20, 'include_dashboard': False}
SHORT = ['--suite', 'hopper-gravity', '--tasks', '2', '--iterations', '2']
SHORT += ['--trajectories', '12']
RAILS = 'PUSH = 0.1\n'
CART = """
import os
import time

import gymnasium
from gymnasium.spaces import Box
import numpy as np
import rails_of_{name}


class Cart(gymnasium.Env):
    observation_space = Box(-np.inf, np.inf, (2,))
    action_space = Box(-1.0, 1.0, (1,))

    def __init__(self, pause=0.0, ends=''):
        self.pause, self.ends = pause, ends

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state, self.age = np.array([self.np_random.uniform(-0.1, 0.1), 0.0]), 0
        return self.state.astype(np.float32), {{}}

    def step(self, action):
        time.sleep(self.pause)
        self.age += 1
        if self.ends and self.age > 30:
            os.kill(os.getpid() if self.ends == 'itself' else os.getppid(), 9)
        where, speed = self.state
        speed = 0.9 * speed + rails_of_{name}.PUSH * float(action[0])
        self.state = np.array([where + 0.1 * speed, speed])
        return self.state.astype(np.float32), -abs(where - 1.0), False, False, {{}}
"""


@pytest.fixture(scope='module')
def nodes():
    """A cluster of one node with a token; `add_node` adds more."""
    utils = pytest.importorskip('ray.cluster_utils')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('RAY_AUTH_MODE', 'token')
        patch.setenv('RAY_AUTH_TOKEN', secrets.token_hex(16))
        read_token_again()
        head = {**NODE, '_system_config': {'worker_niceness': 0}}
        started = utils.Cluster(initialize_head=True, head_node_args=head)
        try:
            yield started
        finally:
            started.shutdown()
    read_token_again()


def read_token_again():
    """Let Ray, which other tests may have used in this process, look at the variables anew."""
    sys.modules['ray']._raylet.Config.initialize('')
    sys.modules['ray']._raylet.AuthenticationTokenLoader.instance().reset_cache()


@pytest.fixture(scope='module')
def suite(tmp_path_factory):
    folder = tmp_path_factory.mktemp('suite')
    name = folder.name.replace('-', '_')
    (folder / f'rails_of_{name}.py').write_text(RAILS)
    (folder / f'cart_{name}.py').write_text(CART.format(name=name))
    where = f'cart_{name}:Cart'
    tasks = [
        {'name': 'slow', 'id': where, 'kwargs': {'pause': 0.002}},
        {'name': 'quick', 'id': where},
        {'name': 'deadly', 'id': where, 'kwargs': {'ends': 'itself'}},
        {'name': 'deadlier', 'id': where, 'kwargs': {'ends': 'worker'}},
    ]
    path = folder / 'mine.yaml'
    path.write_text(json.dumps({'horizon': 80, 'tasks': tasks}))
    return str(path)


def policy_for(task):
    spec, rng = PolicySpec(*task.dimensions), np.random.default_rng(0)
    theta = rng.normal(0.0, 0.1, spec.n_parameters)
    return PolicySnapshot(spec, theta, np.zeros(0), np.zeros(spec.act_dim))


def arrays(batch):
    names = ('observations', 'actions', 'rewards', 'lengths', 'terminated', 'truncated')
    names += ('success', 'failed', 'final_observations')
    return {name: getattr(batch, name).tobytes() for name in names}


def locally(suite, task, n):
    with Sampler(suite, 1) as sampler:
        return arrays(sampler.collect(task, policy_for(sampler.suite.task(task)), n, seed=3))


def test_the_bytes_are_those_of_local_workers_on_one_node_on_three_and_with_one_killed(
    nodes, suite, caplog
):
    want = {'quick': locally(suite, 'quick', 23), 'slow': locally(suite, 'slow', 23)}
    with ClusterSampler(suite, nodes.address, workers=3) as sampler:
        policies = {task: policy_for(sampler.suite.task(task)) for task in want}

        def sampled(task):
            return arrays(sampler.collect(task, policies[task], 23, seed=3))

        assert sampled('quick') == want['quick']
        assert len(sampler.nodes) == 1
        others = [nodes.add_node(**NODE) for _ in range(2)]
        assert sampler.gather(23, 60.0) == 3
        assert len(set(sampler.nodes)) == 3
        assert sampled('quick') == want['quick']

        def kill():
            time.sleep(0.3)
            nodes.remove_node(others[0], allow_graceful=False)

        killer = threading.Thread(target=kill)
        killer.start()
        with caplog.at_level(logging.WARNING):
            assert sampled('slow') == want['slow']
        killer.join()
        assert sampler.losses == 1
        assert 'are sampled again' in caplog.text
        assert sampled('quick') == want['quick']
        assert len(sampler.nodes) == 2


def test_a_run_on_the_cluster_is_the_run_of_local_workers(nodes, tmp_path):
    for name, where in (('here', []), ('there', ['--ray', nodes.address])):
        words = [*SHORT, *where, '--workers', '2', '--out', str(tmp_path / name)]
        assert main(['train', *words]) == 0
    rows = [
        [
            {k: v for k, v in json.loads(line).items() if k != 'timing'}
            for line in (tmp_path / name / 'metrics.jsonl').read_text().splitlines()
        ]
        for name in ('here', 'there')
    ]
    assert rows[0] == rows[1]
    tensors = [
        {
            (file.name, key): array.tobytes()
            for file in (tmp_path / name).rglob('*.safetensors')
            for key, array in load_file(file).items()
        }
        for name in ('here', 'there')
    ]
    assert len(tensors[0]) > 10
    assert tensors[0] == tensors[1]


def test_a_cell_of_a_table_samples_on_several_nodes(nodes, tmp_path):
    while len(nodes.list_all_nodes()) < 3:
        nodes.add_node(**NODE)
    spec = tmp_path / 'spec.yaml'
    budget = {'seeds': [50], 'tasks': 1, 'iterations': 1, 'trajectories': 10}
    methods = [{'learner': 'stl', 'set': {'evaluation_episodes': 1, 'stochastic_episodes': 0}}]
    table = {'suites': ['hopper-gravity'], 'methods': methods, **budget}
    spec.write_text(json.dumps(table))
    words = ['experiment', str(spec), '--workers', '2', '--out', str(tmp_path)]
    assert main([*words, '--ray', nodes.address]) == 0
    run = tmp_path / 'spec/hopper-gravity/stl/seed-50'
    assert json.loads((run / 'summary.json').read_text())['state'] == 'finished'
    with pytest.raises(LpgftwError, match=r'a cell asks for 5 CPUs .* the cluster has 3'):
        RayTasks(nodes.address, workers=4)
    backend = RayTasks(nodes.address, workers=2)
    assert (backend.capacity, backend.options) == (1, ('--ray', nodes.address))
    backend.stop()


def test_a_task_that_only_the_driver_knows_is_refused_with_the_node(nodes):
    import gymnasium

    gymnasium.register('OnlyHere-v0', entry_point='gymnasium.envs.mujoco.hopper_v5:HopperEnv')
    task = TaskSpec('mine', 'gymnasium', {'id': 'OnlyHere-v0'}, horizon=5)
    with (
        ClusterSampler(Suite('mine', (task,)), nodes.address, 1) as sampler,
        pytest.raises(InvalidConfig, match=r"no Gymnasium environment 'OnlyHere.*on node"),
    ):
        sampler.collect('mine', policy_for(task), 5, seed=0)


@pytest.mark.parametrize(
    ('task', 'said'),
    [
        ('deadly', r'ended unexpectedly .*, 3 times in a row \(on node'),
        ('deadlier', 'trajectories 0 to 4 ended their worker 3 times'),
    ],
)
def test_trajectories_that_end_a_process_are_not_sampled_for_ever(nodes, suite, task, said):
    with ClusterSampler(suite, nodes.address, 1) as sampler:
        policy = policy_for(sampler.suite.task(task))
        with pytest.raises(SimulationFailed, match=said):
            sampler.collect(task, policy, 5, seed=0)


def test_other_physics_and_other_arithmetic_are_refused(nodes, monkeypatch):
    suite = load_suite('hopper-gravity')
    with ClusterSampler(suite, nodes.address, 1) as sampler:
        task = suite.tasks[0]
        sampler._physics[task.name] = 'those of another version'
        with pytest.raises(InvalidConfig, match=r'moves in another way here.*on node'):
            sampler.collect(task.name, policy_for(task), 5, seed=0)
    monkeypatch.setattr(module, 'arithmetic_probe', lambda: 'other bits')
    with (
        ClusterSampler(suite, nodes.address, 1) as sampler,
        pytest.raises(LpgftwError, match='computes with other last bits'),
    ):
        sampler.collect(task.name, policy_for(task), 5, seed=0)


def test_a_worker_is_pinned_before_numpy_loads(nodes):
    connection = Cluster(nodes.address)
    try:
        remote = connection.ray.remote(runtime_env={'env_vars': module.worker_environment()})
        assert connection.ray.get(remote(greeting).remote()) == greeting()
        found = connection.ray.get(remote(lambda: dict(os.environ)).remote())
        assert found.items() >= PINS.items()
    finally:
        connection.close()


def test_a_cluster_without_a_free_cpu_is_said(nodes, monkeypatch):
    monkeypatch.setattr(module, 'PATIENCE', 2.0)
    suite = load_suite('hopper-gravity')
    with (
        ClusterSampler(suite, nodes.address, 4) as first,
        ClusterSampler(suite, nodes.address, 1) as second,
    ):
        assert first.gather(15, 60.0) == 3
        with pytest.raises(LpgftwError, match=r'no worker has got a CPU .* it has 3, of which 0'):
            second.collect(suite.tasks[0].name, policy_for(suite.tasks[0]), 5, seed=0)


def test_a_cluster_with_a_token_refuses_who_has_none(nodes, tmp_path):
    words = [sys.executable, '-m', 'lpgftw_ros.cli', 'train', '--suite', 'hopper-gravity']
    words += ['--ray', nodes.address, '--out', str(tmp_path / 'run')]
    bare = {k: v for k, v in os.environ.items() if not k.startswith('RAY_AUTH')}
    done = subprocess.run(words, env=bare, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert 'token' in done.stderr


@pytest.mark.parametrize('address', ['ray://somewhere:10001', 'http://somewhere:8265'])
def test_another_kind_of_address_is_refused(address):
    with pytest.raises(InvalidConfig, match='HOST:PORT, auto or local'):
        Cluster(address)


LISTENERS = f"""
from lpgftw_ros.domains.cluster import Cluster
cluster = Cluster({LOCAL!r}, 1)
import psutil  # Ray brings its own
family = [psutil.Process(), *psutil.Process().children(recursive=True)]
for process in family:
    for socket in process.net_connections('inet'):
        if socket.status == 'LISTEN':
            print(socket.laddr.ip)
cluster.close()
"""


def test_a_cluster_of_this_machine_listens_to_this_machine_only():
    done = subprocess.run(
        [sys.executable, '-c', LISTENERS], capture_output=True, text=True, check=True
    )
    heard = done.stdout.split()
    assert len(heard) > 3
    assert {address.removeprefix('::ffff:') for address in heard} == {'127.0.0.1'}
