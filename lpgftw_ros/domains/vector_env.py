"""The environment all domains share: n rows of one task, stepped together.

It follows `gymnasium.vector.VectorEnv` with autoreset disabled. An episode that ends waits for
the others: its row does not move, pays nothing and keeps its last observation until it is reset.
A domain only implements `_reset_rows` and `_step_rows`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
import math
from typing import Any, ClassVar, NamedTuple

import gymnasium
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
import numpy as np

from lpgftw_ros.domains.episodes import Episodes
from lpgftw_ros.domains.pool import WorkerPool
from lpgftw_ros.domains.resets import reset_mask, row_streams
from lpgftw_ros.errors import InvalidConfig, LpgftwError, NonFinite, WrongShape
from lpgftw_ros.learning.arrays import Array, Integers, Mask


class StepOutcome(NamedTuple):
    """What one control step did to the k rows that were still running; None: to no row."""

    observations: Array
    """Shape (k, obs_dim)."""
    rewards: Array
    """Shape (k,)."""
    terminated: Mask | None
    """The task itself ended. Shape (k,)."""
    success: Mask | None
    """The task is solved at this step. Shape (k,)."""
    failed: Mask | None
    """The simulator blew up: the other fields of these rows are ignored. Shape (k,)."""
    truncated: Mask | None = None
    """A time limit of the task's own, besides the horizon. Shape (k,)."""


class TaskVectorEnv(gymnasium.vector.VectorEnv, ABC):  # type: ignore[misc]
    """n rows of one task.

    `reset(seed=s)` starts row r from the random stream (s, RESET, first + r), where `first` is
    `options['first']` (default 0); a sequence of seeds gives each row its own. `options` may also
    hold `count` (only so many rows take part) or Gymnasium's `reset_mask` (reset only these rows).
    """

    metadata: ClassVar[dict[str, Any]] = {  # type: ignore[misc]
        'render_modes': ['rgb_array'],
        'autoreset_mode': AutoresetMode.DISABLED,
    }
    deterministic_resets: bool = False
    """True if every reset gives the same state whatever the seed."""
    control_period: float = 0.0125
    """Simulated seconds per control step."""

    def __init__(
        self,
        n: int,
        observation_space: gymnasium.spaces.Box,
        action_space: gymnasium.spaces.Box,
        horizon: int,
        render_mode: str | None = None,
    ) -> None:
        if n < 1:
            raise InvalidConfig(f'an environment needs at least one row, got {n}')
        if horizon < 1:
            raise InvalidConfig(f'horizon must be at least 1, got {horizon}')
        self.num_envs, self.horizon, self.render_mode = n, horizon, render_mode
        self.single_observation_space, self.single_action_space = observation_space, action_space
        self.observation_space = batch_space(observation_space, n)
        self.action_space = batch_space(action_space, n)
        self._action_shape = (n, *action_space.shape)
        self._generators: list[np.random.Generator | None] = [None] * n
        self._observations = np.zeros((n, *observation_space.shape))
        self._episodes = Episodes(n, horizon)
        self._owned: WorkerPool | None = None  # only of an environment that stands alone

    # What a domain implements ------------------------------------------------------------------

    @abstractmethod
    def _reset_rows(self, rows: Integers) -> Array:
        """Start new episodes in these rows and return what they see. Shape (k, obs_dim).

        Random numbers come from `self.row_generator(row)` only.
        """

    @abstractmethod
    def _step_rows(self, actions: Array, rows: Integers) -> StepOutcome:
        """Advance the running rows, in ascending order, by one control step.

        `actions` has one finite row per running row, shape (k, act_dim). The arrays of the result
        are read before the next call and may be reused.
        """

    # What a domain may have --------------------------------------------------------------------

    def render_frame(self, row: int = 0, width: int = 480, height: int = 360) -> Any:
        """Return a picture of one row, uint8, shape (height, width, 3)."""
        raise LpgftwError('there are no pictures of this task')

    def joint_state(self, row: int = 0) -> tuple[tuple[str, ...], Array, Array]:
        """Return names, positions and velocities of the joints of one row, if it names any."""
        return (), np.zeros(0), np.zeros(0)

    # What all domains share --------------------------------------------------------------------

    @property
    def obs_dim(self) -> int:
        """Numbers in one observation."""
        return int(self.single_observation_space.shape[0])

    @property
    def act_dim(self) -> int:
        """Numbers in one action."""
        return int(self.single_action_space.shape[0])

    @property
    def alive(self) -> Mask:
        """Rows whose episode still runs. Shape (n,)."""
        return self._episodes.alive

    def row_generator(self, row: int) -> np.random.Generator:
        """Return the random stream of one row, for its resets."""
        stream = self._generators[row]
        if stream is None:  # never seeded: fresh entropy, as Gymnasium does
            stream = self._generators[row] = np.random.default_rng()
        return stream

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Array, dict[str, Any]]:
        """Start new episodes; see the class for seeds and options."""
        options = options or {}
        mask = reset_mask(options, self.num_envs)
        rows = np.flatnonzero(mask)
        if seed is not None and not self.deterministic_resets:
            streams = row_streams(seed, rows, int(options.get('first', 0)), self.num_envs)
            for row, stream in zip(rows, streams, strict=True):
                self._generators[row] = stream or self._generators[row]
        self._show(self._reset_rows(rows), rows)
        self._episodes.begin(mask, keep_others=options.get('reset_mask') is not None)
        return self._observations.copy(), self._infos(np.zeros(self.num_envs, dtype=bool))

    def step(self, actions: Any) -> tuple[Array, Array, Mask, Mask, dict[str, Any]]:
        """Advance every running row by one control step."""
        rewards, success = self.advance(actions)
        solved = np.zeros(self.num_envs, dtype=bool) if success is None else success.copy()
        ends = self._episodes
        result = (self._observations.copy(), rewards.copy(), ends.terminated.copy())
        return *result, ends.truncated.copy(), self._infos(solved)

    def advance(self, actions: Any) -> tuple[Array, Mask | None]:
        """Do what `step` does, without copies for the caller: the control path.

        Returns rewards and success (None: no row), to be read before the next call. What else
        `step` returns is in `observations`, `n_running`, `alive` and `ends`.
        """
        rows = self._episodes.rows
        if rows is None:
            raise gymnasium.error.ResetNeeded('call reset() before the first step()')
        moves = self._checked(actions)
        if len(rows) == self.num_envs:
            return self._record(self._step_rows(moves, rows), rows)
        rewards, success = np.zeros(self.num_envs), np.zeros(self.num_envs, dtype=bool)
        if len(rows):
            outcome = self._step_rows(moves[rows], rows)
            rewards[rows], solved = self._record(outcome, rows)
            success[rows] = False if solved is None else solved
        return rewards, success

    @property
    def observations(self) -> Array:
        """What every row sees now; not to be changed. Shape (n, obs_dim)."""
        return self._observations

    @property
    def n_running(self) -> int:
        """How many rows have not ended."""
        return 0 if self._episodes.rows is None else len(self._episodes.rows)

    @property
    def ends(self) -> tuple[Mask, Mask, Mask]:
        """Return which rows terminated, were truncated, failed. Shapes (n,)."""
        ends = self._episodes
        return ends.terminated.copy(), ends.truncated.copy(), ends.failed.copy()

    def own(self, pool: WorkerPool) -> None:
        """Close these workers together with the environment."""
        self._owned = pool

    def close(self, **kwargs: Any) -> None:
        """Free what the environment holds; calling it again does nothing."""
        super().close(**kwargs)
        if self._owned is not None:
            self._owned.close()

    def render(self) -> tuple[Any, ...] | None:
        """Return one picture per row if `render_mode` is 'rgb_array'."""
        if self.render_mode is None:
            return None
        return tuple(self.render_frame(row) for row in range(self.num_envs))

    def _record(self, outcome: StepOutcome, rows: Integers) -> tuple[Array, Mask | None]:
        """Take over the outcome of the running rows."""
        if outcome.failed is not None and np.count_nonzero(outcome.failed):
            outcome = self._mark_failed(outcome, outcome.failed, rows)
        self._show(outcome.observations, rows)
        self._episodes.tick(outcome.terminated, outcome.truncated)
        return outcome.rewards, outcome.success

    def _mark_failed(self, outcome: StepOutcome, failed: Mask, rows: Integers) -> StepOutcome:
        """Let failed rows end where they were before the step, without reward."""
        ended = failed if outcome.terminated is None else outcome.terminated | failed
        self._episodes.failed[rows] = failed
        return outcome._replace(
            observations=np.where(failed[:, None], self._observations[rows], outcome.observations),
            rewards=np.where(failed, 0.0, outcome.rewards),
            terminated=ended,
            success=None if outcome.success is None else outcome.success & ~failed,
        )

    def _show(self, observations: Array, rows: Integers) -> None:
        """Renew the observations of these rows, in an array nobody else has seen."""
        if len(rows) == self.num_envs:
            self._observations = np.array(observations)
        else:
            self._observations = self._observations.copy()
            self._observations[rows] = observations

    def _checked(self, actions: Any) -> Array:
        """Return the actions as float64, or say which row is wrong before anything moves."""
        try:
            moves = np.ascontiguousarray(actions, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise WrongShape(f'actions must be an array of numbers: {error}') from None
        if moves.shape != self._action_shape:
            raise WrongShape(f'actions have shape {moves.shape}, expected {self._action_shape}')
        if not math.isfinite(np.vdot(moves, moves)):  # cheap; a finite one may still overflow
            finite = np.isfinite(moves).all(axis=1)
            if not finite.all():
                row = int(np.argmin(finite))
                raise NonFinite(f'the action of row {row} is not finite: {moves[row].tolist()}')
        return moves

    def _infos(self, success: Mask) -> dict[str, Any]:
        return {'success': success, 'failed': self._episodes.failed.copy()}
