import math

import numpy as np
import pytest

from lpgftw_ros.experiments import metrics
from lpgftw_ros.experiments.metrics import ledger
from lpgftw_ros.experiments.run_data import Score


def test_a_bar_is_the_mean_over_tasks(make_run, entry):
    run = make_run(tasks=[entry('a', 0, tune=(10.0, 1.0)), entry('b', 1, tune=(20.0, 0.5))])
    score = metrics.stage_score(run, 'tune')
    assert (score.mean_return, score.success) == (15.0, 0.75)


def test_a_bar_counts_only_tasks_that_reached_it(make_run, entry):
    run = make_run(tasks=[entry('a', 0, update=4.0), entry('b', 1)])
    assert metrics.bars(run)['update'].mean_return == 4.0


def test_bars_nobody_reached_are_absent(make_run, entry):
    assert set(metrics.bars(make_run(tasks=[entry('a', 0, start=1.0)]))) == {'start'}


def test_average_performance_is_the_mean_final_return(make_run, entry):
    run = make_run(tasks=[entry('a', 0, final=3.0), entry('b', 1, final=5.0)])
    assert metrics.average_performance(run) == 4.0


def test_backward_transfer_leaves_out_the_last_task(make_run, entry):
    run = make_run(
        tasks=[
            entry('a', 0, tune=9.0, update=10.0, final=7.0),
            entry('b', 1, tune=20.0, final=21.0),
            entry('c', 2, tune=5.0, update=5.0, final=500.0),
        ]
    )
    assert metrics.backward_transfer(run) == pytest.approx((-3.0 + 1.0) / 2)


def test_forgetting_uses_the_best_return_of_the_matrix(make_run, entry):
    run = make_run(
        tasks=[entry(name, i) for i, name in enumerate('abc')],
        matrix=[[10.0], [14.0, 20.0], [8.0, 21.0, 5.0]],
    )
    assert metrics.forgetting(run) == pytest.approx(((14.0 - 8.0) + (20.0 - 21.0)) / 2)


def test_forgetting_without_matrix_is_minus_backward_transfer(make_run, entry):
    run = make_run(tasks=[entry('a', 0, update=10.0, final=7.0), entry('b', 1, final=1.0)])
    assert metrics.forgetting(run) == 3.0


def test_forgetting_of_an_unfinished_run_is_unknown(make_run, entry):
    assert metrics.forgetting(make_run(tasks=[entry('a', 0, tune=1.0)])) is None


def test_retention_is_final_over_tune(make_run, entry):
    run = make_run(tasks=[entry('a', 0, tune=8.0, final=4.0), entry('b', 1, tune=2.0, final=5.0)])
    assert metrics.retention(run) == pytest.approx(0.9)


def test_retention_of_negative_returns_is_unknown(make_run, entry):
    assert metrics.retention(make_run(tasks=[entry('a', 0, tune=-8.0, final=-4.0)])) is None


def test_forward_transfer_compares_areas_of_the_same_task(make_run, entry):
    ours = make_run('ours', tasks=[entry('b', 0), entry('a', 1)], curves=[[2.0, 4.0], [1.0, 2.0]])
    alone = make_run(
        'alone',
        learner='stl',
        tasks=[entry('a', 0), entry('b', 1)],
        curves=[[1.0, 1.0], [4.0] * 2],
    )
    forward = {t.task: t.forward for t in metrics.transfers(ours, alone)}
    assert forward == {'b': pytest.approx(-0.25), 'a': pytest.approx(0.5)}


def test_areas_cover_common_iterations_only(make_run, entry):
    ours = make_run('ours', tasks=[entry('a', 0)], curves=[[2.0]], state='running')
    alone = make_run('alone', learner='stl', tasks=[entry('a', 0)], curves=[[1.0, 100.0]])
    assert metrics.transfers(ours, alone)[0].forward == 1.0


def test_a_task_that_ended_early_holds_its_tuned_policy_with_exploration(make_run, entry):
    """The mean action of the tuned policy, 9, is not what the curve shows."""
    task = entry('a', 0, tune=9.0, tune_stochastic=4.0)
    ours = make_run('ours', tasks=[task], curves=[[1.0, 2.0]])
    alone = make_run('alone', learner='stl', tasks=[entry('a', 0)], curves=[[1.0] * 5])
    (found,) = metrics.transfers(ours, alone)
    assert found.area == pytest.approx((1.0 + 2.0 + 3 * 4.0) / 5)
    (early,) = metrics.transfers(ours, alone, first=1)
    assert (early.area, early.area_alone) == (1.0, 1.0)


def test_without_that_measurement_the_end_of_the_curve_is_held(make_run, entry):
    run = make_run(tasks=[entry('a', 0, tune=9.0)], curves=[[*range(20)]])
    assert metrics.held(run, run.tasks[0]) == Score(18.5, 0.0)


def test_a_measured_start_belongs_to_the_curve(make_run, entry, probe):
    """Its return counts with its steps, and what it takes is missing at the end.

    No iteration here earns as much as STL: a candidate that did has not learned anything.
    """
    ours = make_run(
        'ours', tasks=[entry('a', 0)], curves=[[1.0, 2.0]], extra=[probe('a', 'start', 7.0)]
    )
    alone = make_run('alone', learner='stl', tasks=[entry('a', 0)], curves=[[1.0, 3.0]])
    (found,) = metrics.transfers(ours, alone)
    assert found.area == pytest.approx((7.0 + 1.0) / 2)
    assert found.speed_up == 0.0


def test_probes_of_other_tasks_are_no_part_of_a_curve(make_run, entry, probe):
    ours = make_run(
        'ours', tasks=[entry('a', 0)], curves=[[1.0, 2.0]], extra=[probe('a', 'guard', 7.0)]
    )
    alone = make_run('alone', learner='stl', tasks=[entry('a', 0)], curves=[[1.0, 3.0]])
    assert metrics.transfers(ours, alone)[0].area == pytest.approx(1.5)


def test_areas_weigh_iterations_by_their_steps_up_to_the_budget():
    values, steps = np.array([1.0, 3.0, 5.0]), np.array([100.0, 300.0, 100.0])
    assert metrics.area(values, steps) == pytest.approx((100.0 + 900.0 + 500.0) / 500.0)
    assert metrics.area(values, steps, 200.0) == pytest.approx((100.0 + 300.0) / 200.0)
    assert metrics.area(values, steps, 1000.0, 2.0) == pytest.approx((1500.0 + 1000.0) / 1000.0)
    assert metrics.area(values, steps, 1000.0) == pytest.approx(3.0)


def test_the_area_of_a_lifetime_counts_every_batch(make_run, entry):
    """Two iterations at 1 and an update at 7 for each of two tasks, 600 steps in all."""
    tasks = [
        entry('a', 0, tune_stochastic=2.0, tune=9.0),
        entry('b', 1, tune_stochastic=4.0, tune=9.0),
    ]
    run = make_run(tasks=tasks, curves=[[1.0, 1.0], [1.0, 1.0]], update=7.0, steps=600)
    assert metrics.lifetime_area(run, 600) == pytest.approx((4 * 1.0 + 2 * 7.0) / 6)
    assert metrics.lifetime_area(run, 300) == pytest.approx((2 * 1.0 + 7.0) / 3)
    assert metrics.lifetime_area(run, 2000) == pytest.approx((18.0 + 14 * 3.0) / 20)


def test_a_lead_counts_from_where_it_is_kept(make_run, entry):
    """Earned after 100, 200, ... steps: 4, 4, 6, 10 against 2, 5, 7, 8."""
    task = [entry('a', 0)]
    ours = make_run('ours', tasks=task, curves=[[4.0, 0.0, 2.0]], update=4.0)
    alone = make_run('alone', learner='stl', tasks=task, curves=[[2.0, 3.0, 2.0]], update=1.0)
    assert metrics.ahead_for_good(ours, alone) == 400.0
    assert metrics.ahead_for_good(alone, ours) == math.inf


def test_half_success_is_an_iteration_counted_from_one(make_run, entry):
    task, curve = [entry('a', 0)], [[1.0, 1.0, 1.0]]
    ours = make_run('ours', tasks=task, curves=curve, successes=[[0.0, 0.5, 1.0]])
    alone = make_run('alone', learner='stl', tasks=task, curves=curve, successes=[[0.0] * 3])
    (found,) = metrics.transfers(ours, alone)
    assert (found.half, found.half_alone) == (2.0, math.inf)


def test_lost_success_is_what_the_end_lacks(make_run, entry):
    tasks = [
        entry('a', 0, tune=(1.0, 0.2), update=(1.0, 1.0), final=(1.0, 0.5)),
        entry('b', 1, tune=(1.0, 0.5), final=(1.0, 0.5)),
        entry('c', 2, tune=(1.0, 0.5)),
    ]
    run = make_run(tasks=tasks, suite='mt10')
    assert metrics.lost_success(run) == pytest.approx(0.25)


def test_forward_transfer_of_success_is_the_share_of_what_was_missing(make_run, entry):
    task, curve = [entry('a', 0)], [[1.0, 1.0]]
    ours = make_run('ours', tasks=task, curves=curve, successes=[[0.5, 1.0]])
    alone = make_run('alone', learner='stl', tasks=task, curves=curve, successes=[[0.0, 1.0]])
    assert metrics.transfers(ours, alone)[0].forward_success == pytest.approx(0.5)


def test_a_task_stl_has_not_met_is_left_out(make_run, entry):
    ours = make_run('ours', tasks=[entry('a', 0)], curves=[[1.0]])
    alone = make_run('alone', learner='stl', tasks=[entry('b', 0)], curves=[[1.0]])
    assert metrics.transfers(ours, alone) == ()


def test_speed_up_counts_steps_to_ninety_percent():
    alone, steps = np.array([0.0, 5.0, 9.0, 10.0]), np.full(4, 100.0)
    ours = np.array([0.0, 9.5, 9.5, 9.5])
    # level 9: STL reaches it with its third batch, ours with its second
    assert metrics.speed_up(ours, steps, alone, steps) == pytest.approx(300 / 200)


def test_speed_up_weighs_longer_episodes():
    alone, steps = np.array([0.0, 10.0]), np.array([100.0, 100.0])
    assert metrics.speed_up(alone, 2 * steps, alone, steps) == pytest.approx(0.5)


def test_what_a_start_takes_delays_a_curve():
    steps, alone = np.full(4, 100.0), np.array([0.0, 5.0, 9.0, 10.0])
    assert metrics.speed_up(alone, steps, alone, steps, 300.0) == pytest.approx(300 / 600)


def test_speed_up_is_zero_if_the_level_is_never_reached():
    alone, steps = np.array([0.0, 10.0]), np.full(2, 100.0)
    assert metrics.speed_up(np.zeros(2), steps, alone, steps) == 0.0


def test_speed_up_is_unknown_if_stl_does_not_improve():
    flat, steps = np.ones(4), np.full(4, 100.0)
    assert math.isnan(metrics.speed_up(flat, steps, flat, steps))


def test_the_ledger_splits_speed_by_phase(make_run, entry):
    cost = ledger(make_run(tasks=[entry('a', 0), entry('b', 1)]))
    assert cost.steps_per_second == pytest.approx(1000 / 16)
    assert cost.sampling_steps_per_second == pytest.approx(100)
    assert cost.end_to_end_share == pytest.approx(0.625)


def test_the_ledger_counts_eight_bytes_per_parameter(make_run, entry):
    cost = ledger(make_run(tasks=[entry('a', 0), entry('b', 1)]))
    assert cost.bytes_per_task == 2400.0
