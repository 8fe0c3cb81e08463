import math

from lpgftw_ros.experiments.tables import BODY_SUITES, PUBLISHED, published


def test_mt10_of_the_readme():
    number = published('mt10', 'lpg-ftw', 'final')
    assert (number.mean, number.standard_error) == (154873.0, 5415.0)


def test_the_ewc_table_has_three_stages_of_six_variants_on_six_suites():
    rows = [key for key in PUBLISHED if key[1].startswith('ewc-')]
    assert len(rows) == 3 * 6 * 6


def test_plain_ewc_on_a_body_is_variant_one_three():
    assert published('hopper-bodyparts', 'ewc', 'tune').mean == 936.0


def test_diverged_runs_read_as_such():
    number = published('walker2d-gravity', 'ewc-1-2', 'final')
    assert math.isnan(number.mean)
    assert str(number) == 'diverged'


def test_stl_has_no_final_value():
    assert published('mt50', 'stl', 'final') is None


def test_no_body_has_a_standard_error():
    assert all(n.standard_error is None for n in PUBLISHED.values() if n.suite in BODY_SUITES)
