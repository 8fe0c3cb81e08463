"""The contract all vector environments share, on a domain of two lines."""

import gymnasium
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode
import numpy as np
import pytest

from lpgftw_ros.domains.vector_env import StepOutcome, TaskVectorEnv
from lpgftw_ros.errors import InvalidConfig, LpgftwError, NonFinite, WrongShape


class Counter(TaskVectorEnv):
    """Each row adds its action to one number and ends by itself above 10."""

    def __init__(self, n=3, horizon=5):
        super().__init__(
            n, Box(-np.inf, np.inf, (1,), float), Box(-9.0, 9.0, (1,), float), horizon
        )
        self.totals = np.zeros(n)

    def _reset_rows(self, rows):
        self.totals[rows] = [self.row_generator(int(row)).uniform() for row in rows]
        return self.totals[rows, None]

    def _step_rows(self, actions, rows):
        self.totals[rows] += actions[:, 0]
        totals = self.totals[rows]
        good = np.abs(totals) < 1e6
        none = np.zeros(len(rows), dtype=bool)
        return StepOutcome(totals[:, None], actions[:, 0].copy(), totals > 10.0, none, ~good)


def column(*values):
    return np.array(values, dtype=float)[:, None]


def test_a_domain_without_rows_cannot_be_made():
    with pytest.raises(TypeError, match='_step_rows'):
        TaskVectorEnv(1, Box(-1.0, 1.0, (1,)), Box(-1.0, 1.0, (1,)), 5)


def test_a_domain_need_not_have_joints_or_pictures():
    names, positions, velocities = Counter().joint_state(0)
    assert (names, positions.size, velocities.size) == ((), 0, 0)
    with pytest.raises(LpgftwError, match='no pictures'):
        Counter().render_frame()


def test_a_row_that_ended_waits_without_moving_or_paying():
    env = Counter()
    env.reset(seed=0)
    seen, _, terminated, _, _ = env.step(column(11, 1, 1))
    assert terminated.tolist() == [True, False, False]
    after, rewards, terminated, _, _ = env.step(column(1, 1, 1))
    assert after[0] == seen[0]
    assert rewards.tolist() == [0.0, 1.0, 1.0]
    assert terminated.tolist() == [True, False, False]


def test_the_horizon_truncates_and_does_not_terminate():
    env = Counter(horizon=2)
    env.reset(seed=0)
    assert not env.step(column(1, 1, 1))[3].any()
    _, _, terminated, truncated, _ = env.step(column(1, 1, 11))
    assert truncated.tolist() == [True, True, False]
    assert terminated.tolist() == [False, False, True]


def test_an_ended_environment_can_be_stepped_without_harm():
    env = Counter(horizon=1)
    env.reset(seed=0)
    seen = env.step(column(1, 1, 1))[0]
    after, rewards, *_ = env.step(column(1, 1, 1))
    np.testing.assert_array_equal(after, seen)
    assert not rewards.any()


def test_a_failed_row_keeps_its_last_observation():
    env = Counter()
    start, _ = env.reset(seed=0)
    seen, rewards, terminated, _, infos = env.step(column(1, -1e7, 1))
    assert infos['failed'].tolist() == [False, True, False]
    assert seen[1] == start[1]
    assert rewards[1] == 0.0
    assert terminated[1]


def test_resets_depend_on_seed_and_trajectory_only():
    env, wide = Counter(n=3), Counter(n=5)
    third = wide.reset(seed=7)[0][2:5]
    np.testing.assert_array_equal(env.reset(seed=7, options={'first': 2})[0], third)


def test_other_seeds_give_other_starts():
    env = Counter()
    assert (env.reset(seed=1)[0] != env.reset(seed=2)[0]).all()


def test_without_a_seed_the_streams_run_on():
    env = Counter()
    first = env.reset(seed=1)[0]
    second = env.reset()[0]
    assert (first != second).all()
    env.reset(seed=1)
    np.testing.assert_array_equal(env.reset()[0], second)


def test_a_seed_per_row():
    env = Counter()
    starts = env.reset(seed=[4, 5, 4])[0]
    assert starts[0] == starts[2] != starts[1]


def test_count_leaves_the_other_rows_out():
    env = Counter()
    env.reset(seed=0, options={'count': 2})
    assert env.alive.tolist() == [True, True, False]
    assert env.step(column(1, 1, 1))[1].tolist() == [1.0, 1.0, 0.0]


def test_a_reset_mask_resets_only_its_rows():
    env = Counter()
    env.reset(seed=0)
    seen = env.step(column(11, 1, 11))[0]
    mask = np.array([True, False, False])
    after, _ = env.reset(options={'reset_mask': mask})
    assert after[0] != seen[0]
    np.testing.assert_array_equal(after[1:], seen[1:])
    assert env.alive.tolist() == [True, True, False]


def test_returned_arrays_are_the_callers():
    env = Counter()
    seen, _ = env.reset(seed=0)
    seen[:] = 99.0
    assert (env.step(column(0, 0, 0))[0] < 10.0).all()


def test_autoreset_is_declared_disabled():
    assert Counter.metadata['autoreset_mode'] is AutoresetMode.DISABLED


def test_a_step_needs_a_reset():
    with pytest.raises(gymnasium.error.ResetNeeded):
        Counter().step(column(0, 0, 0))


def test_a_wrong_shape_is_told_the_right_one():
    env = Counter()
    env.reset(seed=0)
    with pytest.raises(WrongShape, match=r'\(2, 1\), expected \(3, 1\)'):
        env.step(column(0, 0))


def test_actions_must_be_numbers():
    env = Counter()
    env.reset(seed=0)
    with pytest.raises(WrongShape, match='numbers'):
        env.step([['left'], ['right'], ['up']])


@pytest.mark.parametrize('bad', [np.nan, np.inf, -np.inf])
def test_a_non_finite_action_moves_nothing(bad):
    env = Counter()
    env.reset(seed=0)
    before = env.totals.copy()
    with pytest.raises(NonFinite, match='row 1'):
        env.step(column(1, bad, 1))
    np.testing.assert_array_equal(env.totals, before)


@pytest.mark.parametrize(
    ('options', 'message'),
    [({'fist': 1}, 'fist'), ({'count': 0}, 'count'), ({'count': 4}, 'between 1 and 3')],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(InvalidConfig, match=message):
        Counter().reset(seed=0, options=options)


def test_a_negative_seed_is_refused():
    with pytest.raises(InvalidConfig, match='negative'):
        Counter().reset(seed=-1)


@pytest.mark.parametrize(('n', 'horizon'), [(0, 5), (3, 0)])
def test_impossible_sizes_are_refused(n, horizon):
    with pytest.raises(InvalidConfig):
        Counter(n, horizon)
