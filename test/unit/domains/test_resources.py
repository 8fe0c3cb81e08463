"""Data files are found in a checkout and in an installation."""

import sys

import pytest

from lpgftw_ros import resources
from lpgftw_ros.errors import LpgftwError


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
