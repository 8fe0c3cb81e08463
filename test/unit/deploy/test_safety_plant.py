"""The guard against an arm that fails or lies; what counts is the true hand.

A seeded sample of `lpgftw bench guard`, which runs ten thousand sequences per interface.
"""

from dataclasses import replace
import json

import numpy as np
import pytest

from lpgftw_ros.bench import guard as bench
from lpgftw_ros.cli import main
from lpgftw_ros.deploy.safety.motion import INTERFACES
from lpgftw_ros.deploy.safety.report import Mode

SAMPLE = 3 * len(bench.FAULTS)
KEPT = bench.Outcome('jammed', 0.02, 0.15, 0.0, 0.37, 1e-3, True, False, False)
"""All that is allowed, but nothing more."""


@pytest.fixture(scope='module', params=INTERFACES)
def sample(request):
    return list(bench.outcomes(request.param, SAMPLE, seed=5))


@pytest.mark.parametrize('kind', bench.FAULTS)
def test_the_true_hand_keeps_every_promise(sample, limits, kind):
    mine = [outcome for outcome in sample if outcome.fault == kind]
    assert len(mine) == SAMPLE // len(bench.FAULTS)
    assert [bench.broken(outcome, limits) for outcome in mine] == [''] * len(mine), mine


@pytest.mark.parametrize(
    ('interface', 'number'), [('trajectory', 2165), ('trajectory', 6775), ('trajectory', 8168)]
)
def test_a_sequence_that_once_broke_a_promise_keeps_it(interface, number, limits):
    (outcome,) = bench.outcomes(interface, 1, seed=17, first=number)
    assert bench.broken(outcome, limits) == '', outcome


def test_the_arm_moves_before_it_fails(sample):
    assert np.mean([outcome.speed > 0.02 for outcome in sample]) > 0.5


def test_a_stop_a_stall_and_silence_always_latch(sample):
    assert all(outcome.latched for outcome in sample if outcome.fault in bench.AT_ONCE)


@pytest.mark.parametrize(
    ('changes', 'promise'),
    [
        ({}, ''),
        ({'excursion': 0.0201}, 'excursion'),
        ({'speed': 0.1501}, 'speed'),
        ({'late': True}, 'rest'),
        ({'creep': 1.1e-3}, 'creep'),
        ({'unnoticed': True}, 'unnoticed'),
        ({'fault': 'none'}, 'latched'),
    ],
)
def test_the_judge_knows_no_exception(limits, changes, promise):
    assert bench.broken(replace(KEPT, **changes), limits) == promise


def test_a_healthy_arm_never_latches(sample):
    assert not any(outcome.latched for outcome in sample if outcome.fault == 'none')


def sequences(interface, kind, count=12, **changes):
    """Yield sequences of one fault, with other limits."""
    chain, limits = bench.kinematics(), replace(bench.load_limits(), **changes)
    starts = bench.starts(chain, limits, 6)
    for i in range(count):
        rng = np.random.default_rng([9, i])
        yield bench.Sequence(rng, chain, limits, interface, starts[i % len(starts)], kind)


def blind(interface, kind):
    """Run sequences of one fault with a guard that never finds the arm astray."""
    for sequence in sequences(interface, kind):
        sequence._guard._arm.astray = lambda joints, motion: None
        yield bench.broken(sequence.run(), bench.load_limits())


@pytest.mark.parametrize(
    ('interface', 'kind'), [('velocity', 'frozen'), ('twist', 'blocked'), ('trajectory', 'frozen')]
)
def test_a_guard_that_does_not_compare_breaks_its_promises(interface, kind):
    assert {'rest', 'unnoticed'} & set(blind(interface, kind))


@pytest.mark.parametrize('interface', INTERFACES)
def test_without_a_bound_for_jams_the_hand_is_thrown(interface, limits):
    jammed = sequences(interface, 'jammed', 30, jam_factor=100.0)
    assert 'speed' in {bench.broken(sequence.run(), limits) for sequence in jammed}


def test_a_guard_that_may_be_away_longer_than_the_arm_waits_is_found_out(limits, monkeypatch):
    monkeypatch.setattr(type(limits), 'longest_gap', property(lambda limits: 10.0))
    stalled = [sequence.run() for sequence in sequences('velocity', 'stalled')]
    assert {'rest', 'unnoticed'} & {bench.broken(outcome, limits) for outcome in stalled}


def test_a_latched_guard_that_kept_sending_would_be_found_out(monkeypatch, limits):
    obey = bench.FaultyArm.obey

    def talk(arm, command, now):
        obey(arm, replace(command, silent=False), now)

    monkeypatch.setattr(bench.FaultyArm, 'obey', talk)
    found = set()
    for sequence in sequences('trajectory', 'stopped_displaced', 6):
        found.add(bench.broken(sequence.run(), limits))
        assert sequence._guard.mode is Mode.LATCHED
    assert found & {'speed', 'rest', 'creep'}


def test_the_bench_prints_a_table_of_interfaces_and_faults(capsys):
    assert main(['bench', 'guard', '--count', str(len(bench.FAULTS)), '--json']) == 0
    report = json.loads(capsys.readouterr().out)
    assert tuple(report['interfaces']) == INTERFACES
    for rows in report['interfaces'].values():
        assert tuple(rows) == bench.FAULTS
        assert all(row['broken'] == 0 for row in rows.values())


def test_an_arm_that_has_not_been_started_needs_no_latch(limits):
    """Noise kept three reports from agreeing until the arm fell silent: it was never moved."""
    (outcome,) = bench.outcomes('velocity', 1, 17, first=5728)
    assert (outcome.fault, outcome.latched, outcome.speed) == ('silent', False, 0.0)
    assert not bench.broken(outcome, limits)
