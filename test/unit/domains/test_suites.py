"""Suites: the published factors and orders, and what a wrong file is told."""

import numpy as np
import pytest

from lpgftw_ros.domains.suites import load_suite, suite_names
from lpgftw_ros.errors import InvalidConfig, UnknownName

BODIES = {'halfcheetah': (500, 20), 'hopper': (600, 20), 'walker2d': (700, 50)}


@pytest.mark.parametrize('body', BODIES)
def test_gravity_factors_are_those_of_the_published_generator(body):
    seed, n = BODIES[body]
    stream = np.random.RandomState(seed)
    expected = [float(stream.rand() + 0.5) for _ in range(n)]
    suite = load_suite(f'{body}-gravity')
    assert [task.settings['gravity'] for task in suite.tasks] == expected


@pytest.mark.parametrize('body', BODIES)
def test_body_part_factors_are_floored_to_four_decimals(body):
    seed, n = BODIES[body]
    stream = np.random.RandomState(seed)
    expected = [np.floor((stream.rand(4) + 0.5) * 1e4) / 1e4 for _ in range(n)]
    suite = load_suite(f'{body}-bodyparts')
    np.testing.assert_array_equal([task.settings['parts'] for task in suite.tasks], expected)


@pytest.mark.parametrize(
    ('name', 'first', 'second', 'last'),
    [
        ('halfcheetah-gravity', 1.1937, 0.5617, 0.9595),
        ('hopper-gravity', 0.5324, 1.0424, 0.6035),
        ('walker2d-gravity', 0.6565, 0.9169, 1.2661),
    ],
)
def test_gravity_check_values_of_the_reference(name, first, second, last):
    tasks = load_suite(name).tasks
    found = [round(tasks[i].settings['gravity'], 4) for i in (0, 1, -1)]
    assert found == [first, second, last]


@pytest.mark.parametrize(
    ('name', 'rows'),
    [
        (
            'halfcheetah-bodyparts',
            [
                [1.1936, 0.5617, 1.1666, 1.0592],
                [0.5851, 0.8924, 0.9970, 0.8321],
                [1.4934, 1.0782, 1.2376, 1.2209],
            ],
        ),
        (
            'hopper-bodyparts',
            [
                [0.5323, 1.0424, 1.3029, 0.5551],
                [0.8822, 0.7109, 1.3523, 0.6185],
                [0.8231, 0.5201, 1.0498, 0.7706],
            ],
        ),
        (
            'walker2d-bodyparts',
            [
                [0.6565, 0.9168, 0.5668, 1.3654],
                [0.8022, 1.2412, 0.9104, 0.8451],
                [1.0922, 1.3718, 0.6393, 1.4102],
            ],
        ),
    ],
)
def test_body_part_check_rows_of_the_reference(name, rows):
    tasks = load_suite(name).tasks
    assert [list(tasks[i].settings['parts']) for i in (0, 1, -1)] == rows


@pytest.mark.parametrize(
    'name', [f'{body}-{kind}' for body in BODIES for kind in ('gravity', 'bodyparts')]
)
@pytest.mark.parametrize('seed', [50, 60, 70, 80, 90])
def test_published_orders(name, seed):
    suite = load_suite(name)
    expected = np.random.RandomState(seed).permutation(len(suite.tasks))
    assert suite.order(seed) == tuple(suite.tasks[i].name for i in expected)


@pytest.mark.parametrize(('name', 'n'), [('mt10', 10), ('mt50', 48)])
@pytest.mark.parametrize('seed', [50, 60, 70, 80, 90])
def test_published_orders_of_meta_world(name, n, seed):
    suite = load_suite(name)
    expected = np.random.RandomState(seed).permutation(n)
    assert suite.order(seed) == tuple(suite.tasks[i].name for i in expected)


def test_first_order_of_seed_50_as_printed():
    order = load_suite('mt10').published_orders[50]
    assert order == (7, 8, 6, 2, 4, 1, 5, 3, 9, 0)


def test_other_seeds_give_a_permutation_that_repeats():
    suite = load_suite('hopper-gravity')
    assert sorted(suite.order(3)) == sorted(suite.task_names)
    assert suite.order(3) == suite.order(3) != suite.order(4)


def test_a_fixed_sequence_holds_for_every_seed():
    suite = load_suite('cw20')
    assert suite.order(1) == suite.order(2) == 2 * suite.order(1)[:10]


@pytest.mark.parametrize('name', suite_names())
def test_every_suite_loads(name):
    suite = load_suite(name)
    assert suite.tasks
    assert suite.description


def test_an_unknown_suite_lists_the_known():
    with pytest.raises(UnknownName, match="did you mean 'mt10'"):
        load_suite('mt11')


def test_an_unknown_task_lists_the_known():
    with pytest.raises(UnknownName, match='gravity-19'):
        load_suite('hopper-gravity').task('gravity-20')


def write(tmp_path, text):
    path = tmp_path / 'mine.yaml'
    path.write_text(text)
    return path


def test_a_users_suite_names_gymnasium_ids(tmp_path):
    path = write(
        tmp_path,
        'horizon: 7\nhidden: [8, 8]\ntasks:\n  - {name: moon, id: Pendulum-v1, kwargs: {g: 1.6}}',
    )
    suite = load_suite(path)
    assert suite.name == 'mine'
    assert suite.hidden == (8, 8)
    assert suite.task('moon').horizon == 7
    assert suite.task('moon').settings['kwargs'] == {'g': 1.6}


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('- a', "list 'tasks'"),
        ('tasks: []', 'at least one task'),
        ('tasks: [{id: Pendulum-v1}]', "'name'"),
        ('tasks: [{name: a}]', "'id' is missing"),
        ('tasks: [{name: a, id: Pendulum-v1}, {name: a, id: Pendulum-v1}]', 'names must differ'),
        ('kind: body\ntasks: [{name: a}]', "'body' is missing"),
        ('kind: body\ntasks: [{name: a, body: hopper, gravity: 0}]', 'positive finite'),
        ('kind: body\ntasks: [{name: a, body: hopper, gravity: .nan}]', 'positive finite'),
        ('kind: body\ntasks: [{name: a, body: hopper, gravity: heavy}]', 'positive finite'),
        ('kind: body\ntasks: [{name: a, body: hopper, parts: [1, 1, 1]}]', '4 factors'),
        ('kind: body\ntasks: [{name: a, body: hopper, parts: [1, 1, 0, 1]}]', 'leg_geom'),
        ('hidden: [0]\ntasks: [{name: a, id: Pendulum-v1}]', 'hidden'),
        ('horizon: 0\ntasks: [{name: a, id: Pendulum-v1}]', 'horizon'),
        ('orders: {50: [1]}\ntasks: [{name: a, id: Pendulum-v1}]', 'every task index once'),
        ('tasks: [', 'not YAML'),
    ],
)
def test_a_wrong_file_is_told_what_is_wrong(tmp_path, text, message):
    with pytest.raises(InvalidConfig, match=message):
        load_suite(write(tmp_path, text))


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('task: []\ntasks: [{name: a, id: Pendulum-v1}]', "did you mean 'tasks'"),
        ('kind: robot\ntasks: [{name: a}]', 'metaworld'),
        ('kind: body\ntasks: [{name: a, body: hoper}]', "did you mean 'hopper'"),
        ('kind: body\ntasks: [{name: a, body: hopper, gravitas: 1}]', "did you mean 'gravity'"),
        ('sequence: [b]\ntasks: [{name: a, id: Pendulum-v1}]', "no task in suite mine 'b'"),
    ],
)
def test_a_wrong_name_is_told_the_right_ones(tmp_path, text, message):
    with pytest.raises((InvalidConfig, UnknownName), match=message):
        load_suite(write(tmp_path, text))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InvalidConfig, match='no suite file'):
        load_suite(tmp_path / 'nothing.yaml')
