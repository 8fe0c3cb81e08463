"""Charts as text: readable XML whatever the numbers are, and nothing of a name becomes markup."""

import math
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from lpgftw_ros.dashboard import charts
from lpgftw_ros.dashboard.charts import Line


def svg(text):
    return ElementTree.fromstring(text[: text.index('</svg>') + 6])


def drawn(text):
    return [path.get('d') for path in svg(text).iter('path')]


def test_a_curve_with_nan_has_a_gap():
    values = np.array([1.0, 2.0, math.nan, 4.0, math.inf, 6.0])
    (path,) = drawn(charts.line_chart([Line('a', values)], x_label='iteration', y_label='return'))
    assert path.count('M') == 3
    assert 'nan' not in path
    assert 'inf' not in path


@pytest.mark.parametrize('values', [[], [math.nan], [math.inf, -math.inf]])
def test_nothing_finite_gives_a_note_instead_of_a_chart(values):
    text = charts.line_chart([Line('a', np.array(values))], x_label='x', y_label='return')
    assert 'nothing measured yet' in text


@pytest.mark.parametrize('values', [[3.0], [5.0, 5.0], [0.0, 1e-12], [-1e9, 1e9]])
def test_any_finite_span_can_be_drawn(values):
    text = charts.line_chart([Line('a', np.array(values))], x_label='x', y_label='y')
    assert len(drawn(text)) == 1
    inside = [float(w[1:]) for w in drawn(text)[0].split() if w[0] in 'ML']
    assert all(0.0 <= x <= charts.WIDTH for x in inside)


def test_names_cannot_become_markup():
    evil = '<script>alert(1)</script>'
    texts = [
        charts.line_chart([Line(evil, np.ones(2))], x_label=evil, y_label=evil),
        charts.heat_map(np.ones((1, 1)), [evil], [evil], limit=1.0, label=evil),
        charts.table([evil], [[evil]]),
        charts.bar(evil, 0.5, evil),
        charts.lines([evil]),
    ]
    assert not any('<script>' in text for text in texts)


def test_a_heat_map_has_a_cell_per_number_and_survives_nan():
    values = np.array([[1.0, -2.0, math.nan], [0.0, 0.5, 2.0]])
    text = charts.heat_map(values, ['a', 'b'], ['1', '2', '3'], limit=2.0, label='S')
    assert len(list(svg(text).iter('rect'))) == 6


def test_numbers_are_short_and_unknown_ones_a_dash():
    assert [charts.short(v) for v in (math.nan, 0.5, 123.4, 98236.8, 2.5e6)] == [
        '-',
        '0.5',
        '123',
        '98.2k',
        '2.5M',
    ]
    assert charts.percent(math.nan) == charts.duration(math.inf) == '-'
    assert charts.duration(5000) == '83 min'
