import math

import pytest

from lpgftw_ros.experiments.groups import display_name, group_runs
from lpgftw_ros.experiments.tables import checks, stage_table


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
    assert group.tune_ratio('lpg-ftw').value == pytest.approx(1.5)


@pytest.mark.parametrize(
    ('label', 'name'),
    [
        ('lpg-ftw', 'LPG-FTW'),
        ('ewc-1-3', 'EWC 1,3'),
        ('stl-small-steps', 'STL (small steps)'),
        ('ewc-w1e-3', 'EWC, weight 1e-3'),
        ('ewc-h', 'EWC-h'),
        ('mine', 'mine'),
    ],
)
def test_methods_have_readable_names(label, name):
    assert display_name(label) == name


def verdicts(group):
    return [check.verdict for check in checks(group)]


SEEDS = 70, 80, 90


def both(life, ours, alone, **options):
    """Return three seeds of LPG-FTW and of STL with the same curves."""
    runs = [life('lpg-ftw', seed, ours, **options) for seed in SEEDS]
    return only(*runs, *(life('stl', seed, alone) for seed in SEEDS))


def test_claims_hold_when_lpg_ftw_is_ahead(life):
    assert verdicts(both(life, [[1.0], [3.0]], [[1.0], [2.0]])) == ['holds'] * 5


def test_claims_fail_when_stl_is_ahead_and_tasks_are_forgotten(life):
    group = both(life, [[1.0], [1.0]], [[1.0], [2.0]], tune=8.0, final=4.0)
    assert verdicts(group)[:4] == ['does not hold'] * 4


def test_no_gain_is_not_faster(life):
    """The same curves: nothing is gained, and half of the tasks are not more than half."""
    found = verdicts(both(life, [[1.0], [2.0]], [[1.0], [2.0]]))
    assert found == ['does not hold', 'holds', 'holds', 'does not hold', 'holds']


@pytest.mark.parametrize('seeds', [(70,), (70, 80)])
def test_two_seeds_decide_nothing(life, seeds):
    ours = [life('lpg-ftw', seed, [[1.0], [3.0]]) for seed in seeds]
    group = only(*ours, *(life('stl', seed, [[1.0], [2.0]]) for seed in seeds))
    assert verdicts(group) == ['not enough seeds'] * 5


def test_seeds_that_disagree_decide_nothing(life):
    curves = {70: [[1.0], [3.0]], 80: [[1.0], [3.0]], 90: [[1.0], [1.0]]}
    ours = [life('lpg-ftw', seed, curve) for seed, curve in curves.items()]
    group = only(*ours, *(life('stl', seed, [[1.0], [2.0]]) for seed in curves))
    assert verdicts(group)[0] == 'not enough seeds'


def test_claims_about_stl_are_open_without_stl(life):
    group = only(*(life('lpg-ftw', seed, [[1.0], [1.0]]) for seed in SEEDS))
    assert verdicts(group) == ['not measured', 'not measured', 'holds', *['not measured'] * 2]


def test_bodies_must_keep_ninety_seven_percent(life):
    runs = (life('lpg-ftw', s, [[1.0]], final=9.5, suite='hopper-gravity') for s in SEEDS)
    assert checks(only(*runs))[2].verdict == 'does not hold'


def test_stages_beside_stl_use_the_seeds_both_have(life):
    """Seed 60 has no STL run, seed 70 of STL no other: neither says anything about the ratio."""
    tunes = {50: 12.0, 60: 1000.0}
    ours = [life('lpg-ftw', seed, [[1.0]], tune=tune) for seed, tune in tunes.items()]
    group = only(*ours, *(life('stl', s, [[1.0]], tune=t) for s, t in ((50, 10.0), (70, 1.0))))
    rows = {row[:2]: row for row in stage_table(group).rows}
    assert rows['LPG-FTW', 'tune'][7] == pytest.approx(1.2)


def test_the_adaptive_method_makes_the_same_claims(life):
    runs = [life('lpg-ftw-adaptive', seed, [[1.0], [3.0]]) for seed in SEEDS]
    group = only(*runs, *(life('stl', seed, [[1.0], [2.0]]) for seed in SEEDS))
    assert checks(group)[0].claim.startswith('LPG-FTW adaptive learns faster')


def test_the_adaptive_method_is_judged_without_the_seeds_its_settings_were_chosen_on(life):
    runs = [life('lpg-ftw-adaptive', seed, [[1.0], [3.0]]) for seed in (50, 60, *SEEDS)]
    alone = [life('stl', seed, [[1.0], [2.0]]) for seed in (50, 60, *SEEDS)]
    group = only(*runs, *alone)
    assert {check.seeds for check in checks(group)} == {SEEDS}
    few = only(*runs[:2], *alone[:2])
    assert set(verdicts(few)) == {'not measured'}


def test_seeds_without_a_score_do_not_count(life):
    """Three pairs, but two of them have met the first task only."""
    ours = [life('lpg-ftw', s, [[1.0], [3.0]] if s == 70 else [[1.0]]) for s in SEEDS]
    group = only(*ours, *(life('stl', seed, [[1.0], [2.0]]) for seed in SEEDS))
    assert checks(group)[0].measured.runs == 1
    assert verdicts(group)[0] == 'not enough seeds'


def test_summed_areas_weigh_tasks_by_their_size(life):
    group = only(life('lpg-ftw', 70, [[3.0], [10.0]]), life('stl', 70, [[1.0], [10.0]]))
    assert group.forward_transfer('lpg-ftw').value == pytest.approx(1.0)
    assert group.area_ratio('lpg-ftw').value == pytest.approx(13.0 / 11.0)


def test_no_claims_are_made_about_other_methods_alone(life):
    assert checks(only(life('stl', 50, [[1.0]]))) == ()
