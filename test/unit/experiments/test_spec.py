from pathlib import Path

import pytest

from lpgftw_ros.commands.experiment import spec_names, spec_path
from lpgftw_ros.errors import InvalidConfig, LpgftwError, UnknownName
from lpgftw_ros.experiments import load_spec, PROFILES

TEXT = """
title: A table
suites: [demo, mt10]
seeds: [50, 60]
iterations: 9
methods:
  - lpg-ftw
  - stl
  - {learner: ewc, label: ewc-1-3, set: {penalty: original}, per_suite: {demo: {weight: 1e-6}}}
profiles:
  smoke: {seeds: [50], iterations: 2, tasks: 3, methods: [stl, pg-ella]}
  paper:
"""


@pytest.fixture
def spec_file(tmp_path: Path) -> Path:
    path = tmp_path / 'table.yaml'
    path.write_text(TEXT)
    return path


def test_cells_are_suites_times_seeds_times_methods(spec_file):
    assert len(load_spec(spec_file).cells) == 2 * 2 * 3


def test_a_profile_overrides_top_level_values(spec_file):
    cells = load_spec(spec_file, 'smoke').cells
    assert {cell.options['iterations'] for cell in cells} == {'2'}
    assert {cell.seed for cell in cells} == {50}


def test_an_empty_profile_changes_nothing(spec_file):
    assert load_spec(spec_file, 'paper').cells == load_spec(spec_file).cells


def test_arguments_are_those_of_train(spec_file, tmp_path):
    cell = load_spec(spec_file).cells[2]
    assert cell.arguments(Path('runs')) == [
        *('--suite', 'demo', '--learner', 'ewc', '--seed', '50', '--iterations', '9'),
        *('--set', 'penalty=original', '--set', 'weight=1e-6'),
        *('--out', 'runs/demo/ewc-1-3/seed-50'),
    ]


def test_pg_ella_starts_from_the_stl_run_of_its_seed(spec_file):
    cell = load_spec(spec_file, 'smoke').cells[1]
    words = cell.arguments(Path('runs'))
    assert words[words.index('--source') + 1] == 'runs/demo/stl/seed-50'


def test_a_method_may_have_fewer_seeds(tmp_path):
    path = tmp_path / 'some.yaml'
    path.write_text('suites: [demo]\nseeds: [1, 2]\nmethods: [stl, {learner: er, seeds: [2]}]')
    cells = [(cell.label, cell.seed) for cell in load_spec(path).cells]
    assert cells == [('stl', 1), ('stl', 2), ('er', 2)]
    path.write_text('suites: [demo]\nseeds: [1]\nmethods: [{learner: er, seeds: [2]}]')
    with pytest.raises(UnknownName, match='seed of a method'):
        load_spec(path)


def test_settings_per_suite_stay_with_their_suite(spec_file):
    settings = {cell.suite: cell.settings for cell in load_spec(spec_file).cells if cell.settings}
    assert 'weight' not in settings['mt10']


@pytest.mark.parametrize(
    ('old', 'new', 'message'),
    [
        ('suites: [demo, mt10]', '', "needs a list 'suites'"),
        ('seeds: [50, 60]', 'seeds: []', "needs a list 'seeds'"),
        ('seeds: [50, 60]', 'seeds: [-1]', 'whole number'),
        ('seeds: [50, 60]', 'seeds: [50, 50]', 'twice'),
        ('  - stl', '  - pg-ella', 'not among the methods'),
        ('  - stl', '  - {label: x}', "has a 'learner'"),
        ('title: A table', '[', 'cannot read'),
    ],
)
def test_bad_specs_say_what_is_wrong(spec_file, old, new, message):
    spec_file.write_text(TEXT.replace(old, new))
    with pytest.raises(InvalidConfig, match=message):
        load_spec(spec_file)


@pytest.mark.parametrize('key', ['iteration: 3', 'titel: x'])
def test_unknown_keys_suggest_the_nearest(spec_file, key):
    spec_file.write_text(TEXT + key)
    with pytest.raises(UnknownName, match='did you mean'):
        load_spec(spec_file)


def test_an_unknown_profile_lists_the_known(spec_file):
    with pytest.raises(UnknownName, match='smoke, paper'):
        load_spec(spec_file, 'huge')


@pytest.mark.parametrize('profile', PROFILES)
@pytest.mark.parametrize('name', spec_names())
def test_every_shipped_spec_has_all_profiles(name, profile):
    assert load_spec(spec_path(name), profile).cells


def test_an_unknown_figure_suggests_the_nearest():
    with pytest.raises(UnknownName, match='did you mean'):
        spec_path('halfcheetah-gravty')


@pytest.mark.parametrize(
    'content',
    [
        b'a: [1\nb: }',
        b'\xff\xfe',
        b'suites: [demo]\nseeds: [1]\nmethods: [stl]\nset: 3',
        b'suites: [demo]\nseeds: [1]\nmethods: [stl]\nprofiles: [smoke]',
        b'suites: [demo]\nseeds: [1]\nmethods: [stl]\nprofiles: {smoke: 3}',
        b'suites: [demo]\nseeds: [1]\nmethods: [{learner: stl, set: [3]}]',
        b'suites: [demo]\nseeds: [1]\nmethods: [{learner: stl, per_suite: [3]}]',
        b'suites: [demo]\nseeds: [1]\nmethods: [{learner: stl, per_suite: {demo: 3}}]',
        b'suites: [demo]\nseeds: [1]\nmethods: [{learner: stl, 4: 3}]',
        b'suites: [[1]]\nseeds: [1]\nmethods: [stl]',
        b'suites: [demo]\nseeds: [1]\nmethods: [stl]\n1: 2',
    ],
)
def test_what_is_no_spec_is_said_in_one_line(tmp_path, content):
    path = tmp_path / 'spec.yaml'
    path.write_bytes(content)
    with pytest.raises(LpgftwError) as caught:
        load_spec(path, 'smoke' if b'smoke' in content else None)
    assert '\n' not in str(caught.value)
