"""Data files are found in a checkout and in an installation; YAML files are read with care."""

import sys

import pytest
import yaml

from lpgftw_ros import resources
from lpgftw_ros.domains.suites import load_suite
from lpgftw_ros.errors import InvalidConfig, LpgftwError
from lpgftw_ros.resources import read_yaml


def installed(tmp_path, monkeypatch):
    """Pretend the package lies in site-packages, away from its data."""
    monkeypatch.setattr(resources, '__file__', str(tmp_path / 'site' / 'lpgftw_ros' / 'x.py'))
    monkeypatch.setattr(sys, 'prefix', str(tmp_path / 'prefix'))
    monkeypatch.delenv('AMENT_PREFIX_PATH', raising=False)


def share(tmp_path, prefix):
    folder = tmp_path / prefix / 'share' / 'lpgftw_ros' / 'sim' / 'suites'
    folder.mkdir(parents=True)
    return folder


def test_a_checkout_has_its_suites():
    assert (resources.data_folder('sim/suites') / 'mt10.yaml').is_file()


def test_pip_installs_below_the_prefix(tmp_path, monkeypatch):
    installed(tmp_path, monkeypatch)
    folder = share(tmp_path, 'prefix')
    assert resources.data_folder('sim/suites') == folder


def test_colcon_installs_below_the_ament_prefix(tmp_path, monkeypatch):
    installed(tmp_path, monkeypatch)
    folder = share(tmp_path, 'workspace')
    monkeypatch.setenv('AMENT_PREFIX_PATH', f'{tmp_path / "other"}:{tmp_path / "workspace"}')
    assert resources.data_folder('sim/suites') == folder


def test_missing_data_says_where_it_looked(tmp_path, monkeypatch):
    installed(tmp_path, monkeypatch)
    with pytest.raises(LpgftwError, match='prefix'):
        resources.data_folder('sim/suites')


def laughs(depth: int) -> str:
    """Return a few lines that stand for ten to the power of `depth` values."""
    lines = ['a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]']
    lines += [f'a{i}: &a{i} [{", ".join(10 * [f"*a{i - 1}"])}]' for i in range(1, depth)]
    return '\n'.join(lines)


@pytest.mark.parametrize(
    'text',
    [
        laughs(9),
        'a: &a [*a]',
        'a: &a {b: *a}',
        '[' * 100_000,
        '- ' * 100_000,
        'a: 1\na: 2',
        'a: ' + 5000 * '9',
    ],
    ids=len,
)
def test_a_yaml_file_that_stands_for_too_much_is_refused(tmp_path, text):
    path = tmp_path / 'laughs.yaml'
    path.write_text(text)
    with pytest.raises(yaml.YAMLError):
        read_yaml(path)


def test_a_suite_of_aliases_is_refused_in_one_line(tmp_path):
    path = tmp_path / 'laughs.yaml'
    path.write_text(laughs(9))
    with pytest.raises(InvalidConfig, match='more than 100000 values'):
        load_suite(path)


def test_an_alias_is_what_it_stands_for(tmp_path):
    path = tmp_path / 'alias.yaml'
    path.write_text(laughs(2))
    assert read_yaml(path)['a1'] == 10 * [10 * [1]]
