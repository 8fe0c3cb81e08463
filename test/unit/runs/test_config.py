import pytest

from lpgftw_ros.errors import InvalidConfig, UnknownName
from lpgftw_ros.runs.config import resolve, RunConfig

PUBLISHED = {
    # suite: iterations, trajectories, step size, columns, value epochs, value rate, EWC weight
    'halfcheetah-gravity': (50, 10, 0.5, 5, 2, 1e-3, 1e-6),
    'halfcheetah-bodyparts': (50, 10, 0.5, 5, 2, 1e-3, 1e-6),
    'hopper-gravity': (100, 50, 0.005, 5, 10, 1e-4, 1e-7),
    'hopper-bodyparts': (100, 50, 0.005, 5, 10, 1e-4, 1e-4),
    'walker2d-gravity': (200, 50, 0.05, 5, 2, 1e-3, 1e-7),
    'walker2d-bodyparts': (200, 50, 0.05, 10, 2, 1e-3, 1e-7),
    'mt10': (200, 50, 0.005, 3, 10, 1e-3, 1e-7),
    'mt50': (200, 50, 0.005, 3, 10, 1e-3, 1e-7),
}


@pytest.mark.parametrize('suite', PUBLISHED)
def test_presets_are_the_published_settings(suite: str) -> None:
    iterations, trajectories, max_kl, columns, epochs, rate, weight = PUBLISHED[suite]
    config = resolve(suite, 'lpg-ftw')
    assert (config.loop.iterations, config.loop.trajectories) == (iterations, trajectories)
    assert config.loop.update_trajectories == 10
    method = config.method
    assert (method['max_kl'], method['max_columns']) == (max_kl, columns)
    assert (method['value_epochs'], method['value_learning_rate']) == (epochs, rate)
    assert (method['gamma'], method['gae_lambda'], method['model_gae_lambda']) == (
        0.995,
        0.97,
        0.98,
    )
    assert (method['cg_iterations'], method['cg_damping']) == (10, 1e-4)
    assert resolve(suite, 'ewc').method['ewc_weight'] == weight


@pytest.mark.parametrize(('suite', 'width'), [('mt10', 50), ('mt50', 40)])
def test_ewc_h_is_ewc_with_a_wider_network(suite: str, width: int) -> None:
    config = resolve(suite, 'ewc-h')
    assert config.method_name == 'ewc'
    assert config.hidden == (width, width)


def test_paper_preset_follows_the_text() -> None:
    method = resolve('halfcheetah-gravity', 'lpg-ftw', preset='paper').method
    assert method['update_from'] == 'after_columns'
    assert method['residual_penalty'] == 1e-5
    assert method['ridge'] == 2e-5


def test_seed_decides_the_order_and_a_count_shortens_it() -> None:
    config = resolve('halfcheetah-gravity', 'stl', overrides={'seed': 50}, tasks='3')
    assert config.tasks == ('gravity-15', 'gravity-08', 'gravity-09')


def test_pg_ella_has_no_iterations_of_its_own() -> None:
    config = resolve('halfcheetah-gravity', 'pg-ella', overrides={'iterations': 7})
    assert config.loop.iterations == 0


def test_names_may_repeat() -> None:
    config = resolve('halfcheetah-gravity', 'stl', tasks='gravity-01,gravity-02,gravity-01')
    assert config.tasks == ('gravity-01', 'gravity-02', 'gravity-01')


def test_text_is_read_as_the_type_of_the_setting() -> None:
    config = resolve('mt10', 'lpg-ftw', overrides={'max_kl': '1e-2', 'matrix': 'true'})
    assert config.method['max_kl'] == 0.01
    assert config.loop.matrix is True


@pytest.mark.parametrize(
    ('change', 'words'),
    [
        ({'learner': 'lpg-ft'}, "did you mean 'lpg-ftw'"),
        ({'suite_name': 'halfcheetah-gravty'}, "did you mean 'halfcheetah-gravity'"),
        ({'overrides': {'max_column': 3}}, "did you mean 'max_columns'"),
        ({'tasks': 'gravity-0'}, 'did you mean'),
        ({'preset': 'papre'}, "did you mean 'paper'"),
        ({'preset': 'mt10'}, 'known: published, paper'),
        ({'preset': 'halfcheetah-gravity'}, 'known: published, paper'),
        ({'tasks': '+-3'}, 'no task'),
        ({'tasks': '\u00b2'}, 'no task'),
    ],
)
def test_unknown_names_suggest_the_nearest(change: dict, words: str) -> None:
    arguments = {'suite_name': 'halfcheetah-gravity', 'learner': 'lpg-ftw'} | change
    with pytest.raises(UnknownName, match=words):
        resolve(**arguments)


@pytest.mark.parametrize(
    ('overrides', 'tasks'),
    [
        ({'iterations': -1}, None),
        ({'trajectories': 0}, None),
        ({'max_kl': float('nan')}, None),
        ({'seed': 'x'}, None),
        ({'hidden': 'wide'}, None),
        ({}, '0'),
        ({}, '-3'),
        ({}, '21'),
    ],
)
def test_bad_values_are_refused(overrides: dict, tasks: str | None) -> None:
    with pytest.raises(InvalidConfig):
        resolve('halfcheetah-gravity', 'lpg-ftw', overrides=overrides, tasks=tasks)


def test_round_trip() -> None:
    config = resolve('mt10', 'lpg-ftw', tasks='2')
    assert RunConfig.from_dict(config.to_dict()) == config


def test_another_format_is_refused() -> None:
    values = resolve('mt10', 'lpg-ftw').to_dict() | {'format': 99}
    with pytest.raises(InvalidConfig, match='format 99'):
        RunConfig.from_dict(values)


def test_a_setting_newer_than_the_folder_has_its_default() -> None:
    config = resolve('mt10', 'lpg-ftw')
    values = config.to_dict()
    del values['method']['coefficient_start'], values['loop']['threads']
    assert RunConfig.from_dict(values) == config


@pytest.mark.parametrize(
    'change', [{'learner': 'sac'}, {'method': {'max_kl': -1.0}}, {'method': {'momentum': 0.9}}]
)
def test_a_spoilt_folder_is_refused(change: dict) -> None:
    values = resolve('mt10', 'lpg-ftw').to_dict() | change
    with pytest.raises((InvalidConfig, UnknownName)):
        RunConfig.from_dict(values)


def test_a_setting_this_version_no_longer_has_must_have_been_off() -> None:
    config = resolve('mt10', 'lpg-ftw-adaptive')
    values = config.to_dict()
    values['method'] |= {'head_start': 'fresh', 'head_penalty': 1.0}
    assert RunConfig.from_dict(values) == config
    values['method']['head_start'] = 'measured'
    with pytest.raises(InvalidConfig, match='head_start: measured'):
        RunConfig.from_dict(values)
