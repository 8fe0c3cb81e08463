"""The sampling bench: turns, the physics limit, bad options."""

import json

import numpy as np
import pytest

from lpgftw_ros.bench import best_rates, Contestant, sampling
from lpgftw_ros.cli import main
from lpgftw_ros.domains.sampler import Sampler
from lpgftw_ros.domains.suites import Suite, TaskSpec


def test_contestants_take_turns_after_a_warm_up():
    turns = []
    contestants = [
        Contestant(name, lambda name=name: turns.append(name) or 10) for name in ('a', 'b')
    ]
    rates = best_rates(contestants, rounds=2, window=0.0)
    assert turns == ['a', 'b', 'a', 'b', 'a', 'b']
    assert all(rate > 0.0 for rate in rates.values())


def test_the_limit_replays_the_whole_horizon_without_an_end():
    task = TaskSpec('endless', 'body', {'body': 'hopper', 'terminate': False}, 120)
    with Sampler(Suite('bench', (task,)), workers=2) as sampler:
        limit = sampling._body_limit(sampler, 'hopper', 3, 'limit')
        assert limit.run() == 3 * 120
        limit.close()


def test_the_policy_of_the_bench_explores_with_sigma_one():
    policy = sampling._policy(11, 3)
    np.testing.assert_array_equal(policy.log_std, 0.0)


def test_ray_and_local_workers_are_compared_on_the_same_bytes(capsys):
    assert main(['bench', 'ray', '--json', '--only', 'hopper', '--rounds', '1']) == 0
    found = json.loads(capsys.readouterr().out)['hopper']
    assert found['ratio'] == pytest.approx(found['ray'] / found['local'])
    assert found['bytes_of_policy'] == 8 * (3 * 12 + 3)
    assert found['empty_ms'] > 0.0


def test_an_unknown_domain_exits_2(capsys):
    assert main(['bench', 'sampling', '--only', 'hoper']) == 2
    assert "did you mean 'hopper'" in capsys.readouterr().err
