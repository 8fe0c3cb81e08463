import math

import pytest

from lpgftw_ros.experiments.checks import checks
from lpgftw_ros.experiments.groups import display_name, group_runs


def lifetime(make_run, entry, label, seed, curves, tune=10.0, final=10.0, suite='mt10', columns=1):
    tasks = [
        entry(name, i, tune=(tune, 0.5), final=(final, 0.5))
        for i, name in zip(range(len(curves)), 'abcdefgh', strict=False)
    ]
    return make_run(
        f'{label}-{seed}',
        learner=label,
        seed=seed,
        tasks=tasks,
        curves=curves,
        suite=suite,
        columns=columns if label == 'lpg-ftw' else 0,
    )


@pytest.fixture
def life(make_run, entry):
    return lambda *args, **options: lifetime(make_run, entry, *args, **options)


def only(*runs):
    (group,) = group_runs(runs)
    return group


def test_methods_come_in_a_fixed_order(life):
    group = only(*(life(label, 50, [[1.0]]) for label in ('pg-ella', 'stl', 'lpg-ftw')))
    assert list(group.methods) == ['lpg-ftw', 'stl', 'pg-ella']


def test_suites_are_kept_apart(life):
    groups = group_runs([life('stl', 50, [[1.0]]), life('stl', 60, [[1.0]], suite='demo')])
    assert [group.suite for group in groups] == ['demo', 'mt10']


def test_a_stage_averages_tasks_then_seeds(life):
    group = only(life('stl', 50, [[1.0]], tune=10.0), life('stl', 60, [[1.0]], tune=14.0))
    mean = group.stage('stl', 'tune')
    assert (mean.value, mean.n) == (12.0, 2)
    assert mean.error == pytest.approx(2.0 / math.sqrt(2))


def test_runs_are_paired_by_seed(life):
    group = only(
        life('lpg-ftw', 50, [[1.0]]), life('lpg-ftw', 60, [[1.0]]), life('stl', 60, [[1.0]])
    )
    assert [(a.seed, b.seed) for a, b in group.pairs('lpg-ftw')] == [(60, 60)]


def test_forward_transfer_after_k_leaves_out_the_first_tasks(life):
    group = only(life('lpg-ftw', 50, [[1.0], [3.0]]), life('stl', 50, [[2.0], [2.0]]))
    assert group.forward_transfer('lpg-ftw', after=1).value == pytest.approx(0.5)
    assert group.forward_transfer('lpg-ftw').value == pytest.approx(0.0)


def test_tasks_above_counts_wins_in_mean_area(life):
    group = only(life('lpg-ftw', 50, [[1.0], [3.0]]), life('stl', 50, [[2.0], [2.0]]))
    assert group.tasks_above('lpg-ftw') == (1, 2)


def test_improvement_is_the_share_of_tasks_won_with_one_seed(life):
    group = only(life('lpg-ftw', 50, [[1.0], [3.0]]), life('stl', 50, [[2.0], [2.0]]))
    assert group.improvement('lpg-ftw').value == 0.5


def test_tune_ratio_uses_common_tasks(life):
    group = only(
        life('lpg-ftw', 50, [[1.0]], tune=15.0), life('stl', 50, [[1.0], [1.0]], tune=10.0)
    )
    assert group.tune_ratio('lpg-ftw') == pytest.approx(1.5)


@pytest.mark.parametrize(
    ('label', 'name'),
    [
        ('lpg-ftw', 'LPG-FTW'),
        ('ewc-1-3', 'EWC 1,3'),
        ('ewc-w1e-3', 'EWC, weight 1e-3'),
        ('ewc-h', 'EWC-h'),
        ('mine', 'mine'),
    ],
)
def test_methods_have_readable_names(label, name):
    assert display_name(label) == name


def verdicts(group):
    return [check.verdict for check in checks(group)]


def test_claims_hold_when_lpg_ftw_is_ahead(life):
    group = only(life('lpg-ftw', 50, [[1.0], [3.0]]), life('stl', 50, [[1.0], [2.0]]))
    assert verdicts(group) == ['holds'] * 5


def test_claims_fail_when_stl_is_ahead_and_tasks_are_forgotten(life):
    group = only(
        life('lpg-ftw', 50, [[1.0], [1.0]], tune=8.0, final=4.0),
        life('stl', 50, [[1.0], [2.0]], tune=10.0),
    )
    assert verdicts(group)[:4] == ['does not hold'] * 4


def test_claims_about_stl_are_open_without_stl(life):
    group = only(life('lpg-ftw', 50, [[1.0], [1.0]]))
    assert verdicts(group) == [
        'not measured',
        'not measured',
        'holds',
        'not measured',
        'not measured',
    ]


def test_bodies_must_keep_ninety_seven_percent(life):
    group = only(life('lpg-ftw', 50, [[1.0]], final=9.5, suite='hopper-gravity'))
    assert checks(group)[2].verdict == 'does not hold'


def test_no_claims_are_made_about_other_methods_alone(life):
    assert checks(only(life('stl', 50, [[1.0]]))) == ()
