"""Settings check themselves and read text."""

from dataclasses import fields

import pytest

from lpgftw_ros.errors import InvalidConfig, UnknownName
from lpgftw_ros.learning.config import configure, TrainingConfig
from lpgftw_ros.learning.registry import LEARNERS


def test_text_is_read_as_the_type_of_the_setting():
    text = {'max_kl': '1e-3', 'cg_iterations': '7', 'bootstrap_timeouts': 'True', 'step': 'npg'}
    config = configure(TrainingConfig, text)
    assert (config.max_kl, config.cg_iterations, config.bootstrap_timeouts) == (1e-3, 7, True)


@pytest.mark.parametrize(
    ('name', 'value'), [('gamma', 0.0), ('gamma', 1.0), ('max_kl', 1e-9), ('cg_iterations', 1000)]
)
def test_both_ends_of_a_range_are_allowed(name, value):
    assert getattr(TrainingConfig(**{name: value}), name) == value


def test_a_whole_number_is_a_number():
    config = TrainingConfig(gamma=1)
    assert isinstance(config.gamma, float)


@pytest.mark.parametrize(
    ('name', 'value', 'message'),
    [
        ('max_kl', 0.0, 'max_kl must be at least 1e-09, got 0'),
        ('gamma', 1.5, 'gamma must be at most 1, got 1.5'),
        ('gamma', float('nan'), 'gamma must be a finite number, got nan'),
        ('step', 'adam', "step must be one of npg, reinforce, trpo, agreed, got 'adam'"),
        ('step', 3, 'step must be a text, got 3'),
        ('cg_iterations', 2.5, 'cg_iterations must be a whole number, got 2.5'),
        ('cg_iterations', True, 'cg_iterations must be a whole number, got True'),
        ('cg_iterations', 'ten', "cg_iterations must be a whole number, got 'ten'"),
        ('bootstrap_timeouts', 'maybe', "bootstrap_timeouts must be true or false, got 'maybe'"),
        ('bootstrap_timeouts', 1, 'bootstrap_timeouts must be true or false, got 1'),
    ],
)
def test_a_bad_value_is_named(name, value, message):
    with pytest.raises(InvalidConfig) as caught:
        TrainingConfig(**{name: value})
    assert str(caught.value) == message


def test_an_unknown_setting_names_the_known_ones():
    with pytest.raises(UnknownName, match=r"no setting 'gama'; did you mean 'gamma'\?"):
        configure(TrainingConfig, {'gama': 0.9})


@pytest.mark.parametrize('name', LEARNERS)
def test_every_setting_says_what_it_is(name):
    for item in fields(LEARNERS[name][0]):
        assert item.metadata['help'], item.name
