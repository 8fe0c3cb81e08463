"""A policy as a file: the same numbers, a contract, and an ONNX graph that agrees."""

from dataclasses import replace

import numpy as np
import onnxruntime
import pytest

from lpgftw_ros.cli import main
from lpgftw_ros.deploy.export import (
    ContractMismatch,
    export_policy,
    load_policy,
    require_match,
    save_onnx,
    save_policy,
)
from lpgftw_ros.deploy.observation import ControlSettings
from lpgftw_ros.errors import InvalidConfig, NonFinite, StateMismatch
from lpgftw_ros.learning.policies import PolicySnapshot, PolicySpec
from lpgftw_ros.runs.storage import CannotWrite


def policy_of(hidden, obs_dim=6, seed=0):
    spec, rng = PolicySpec(obs_dim, 4, hidden), np.random.default_rng(seed)
    theta, head = rng.normal(size=spec.n_parameters), rng.normal(size=spec.head_size)
    return PolicySnapshot(spec, theta, head, np.zeros(4))


def exported_of(hidden, **changes):
    return export_policy(policy_of(hidden), 'reach', ControlSettings(**changes), {'run': 'test'})


@pytest.fixture
def observations():
    return np.random.default_rng(1).normal(size=(50, 6))


@pytest.mark.parametrize('hidden', [(), (32, 32)])
def test_a_policy_comes_back_as_it_was_written(tmp_path, hidden, observations):
    exported = exported_of(hidden)
    save_policy(exported, tmp_path / 'policy')
    loaded = load_policy(tmp_path / 'policy')
    np.testing.assert_array_equal(
        loaded.policy.act(observations), exported.policy.act(observations)
    )
    assert (loaded.contract, loaded.control) == (exported.contract, exported.control)


@pytest.mark.parametrize('hidden', [(), (32, 32)])
def test_the_onnx_graph_acts_like_the_policy(tmp_path, hidden, observations):
    exported = exported_of(hidden)
    save_onnx(exported, tmp_path / 'policy.onnx')
    session = onnxruntime.InferenceSession(str(tmp_path / 'policy.onnx'))
    (actions,) = session.run(None, {'observation': observations.astype(np.float32)})
    np.testing.assert_allclose(actions, exported.policy.act(observations), rtol=1e-4, atol=1e-4)


def test_a_changed_number_is_noticed(tmp_path):
    exported = exported_of(())
    other = replace(exported, policy=policy_of((), seed=5))
    save_policy(other, tmp_path / 'policy')
    with pytest.raises(ContractMismatch, match='hash'):
        load_policy(tmp_path / 'policy')


@pytest.mark.parametrize('content', [b'', b'{}', b'\x08\x00\x00\x00\x00\x00\x00\x00{}      '])
def test_another_file_is_refused(tmp_path, content):
    path = tmp_path / 'policy'
    path.write_bytes(content)
    with pytest.raises(StateMismatch, match='not an exported policy'):
        load_policy(path)


def test_a_file_that_is_not_there_is_said_to_be_so(tmp_path):
    with pytest.raises(InvalidConfig, match='no policy file'):
        load_policy(tmp_path / 'nothing')


def test_a_cut_file_is_refused(tmp_path):
    save_policy(exported_of((32, 32)), tmp_path / 'policy')
    whole = (tmp_path / 'policy').read_bytes()
    (tmp_path / 'policy').write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StateMismatch):
        load_policy(tmp_path / 'policy')


def test_a_policy_gets_its_folder_and_nothing_is_left_beside_it(tmp_path):
    save_policy(exported_of(()), tmp_path / 'new' / 'policy')
    assert [path.name for path in (tmp_path / 'new').iterdir()] == ['policy']


@pytest.mark.parametrize('place', ['file/policy', 'folder'])
def test_a_place_that_cannot_be_written_is_named_in_one_line(tmp_path, place):
    (tmp_path / 'file').touch()
    (tmp_path / 'folder').mkdir()
    with pytest.raises(CannotWrite, match='cannot write'):
        save_policy(exported_of(()), tmp_path / place)


def test_a_policy_of_another_observation_is_refused():
    with pytest.raises(InvalidConfig, match='17 observations'):
        export_policy(policy_of((), obs_dim=17), 'run', ControlSettings(), {})


def test_numbers_that_are_not_finite_are_refused():
    bad = replace(policy_of(()), log_std=np.array([0.0, np.nan, 0.0, 0.0]))
    with pytest.raises(NonFinite):
        export_policy(bad, 'reach', ControlSettings(), {})


def test_the_hash_depends_on_the_rate():
    assert exported_of((), rate=10.0).contract.hash != exported_of((), rate=20.0).contract.hash


@pytest.mark.parametrize(
    'change', [{'task': 'push'}, {'rate': 80.0}, {'frame_id': 'base'}, {'hash': 'x'}]
)
def test_a_contract_that_differs_is_named(change):
    contract = exported_of(()).contract
    with pytest.raises(ContractMismatch, match=next(iter(change))):
        require_match(contract, replace(contract, **change))


def test_an_open_hash_lets_a_policy_in_training_pass():
    contract = exported_of(()).contract
    require_match(replace(contract, hash=''), contract)


def test_export_of_a_folder_that_is_no_run_ends_in_one_line(tmp_path, capsys):
    code = main(['export', str(tmp_path), '--task', 'reach', '--out', str(tmp_path / 'p')])
    assert (code, capsys.readouterr().err.count('\n')) == (2, 1)
