"""The environment all domains share: n rows of one task, stepped together.

It follows `gymnasium.vector.VectorEnv` with autoreset disabled. A row whose episode has ended
waits for the others: it does not move, gets no reward and keeps its last observation until it is
reset. A domain only implements `_reset_rows` and `_step_rows`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
import importlib
import math
from typing import Any, ClassVar, NamedTuple

import gymnasium
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
import numpy as np

from lpgftw_ros.domains.suites import KINDS, TaskSpec
from lpgftw_ros.domains.workers import Workers
from lpgftw_ros.errors import InvalidConfig, LpgftwError, NonFinite, WrongShape
from lpgftw_ros.learning.arrays import Array, Integers, Mask
from lpgftw_ros.learning.randomness import generator, Purpose

# The view of a task: a model to draw, and where everything in a row is now.


@dataclass(frozen=True, slots=True)
class SceneState:
    """Where everything in one row is; with the task's model it can be drawn."""

    positions: Array
    """MuJoCo's generalised positions, free joints included. Shape (nq,)."""
    mocap: Array
    """Position and quaternion of each mocap body. Shape (nmocap, 7)."""
    goal: Array
    """Goal of the task in m. Shape (3,), or (0,) if it has none."""
    time: float
    """Simulated seconds since the episode began."""


def scene_model(task: TaskSpec, goal: Array | None = None) -> Any:
    """Return a new MuJoCo model of a task; None if the task has none.

    If the task has several placements, `goal` chooses the one with the nearest goal.
    """
    module = importlib.import_module(f'{KINDS[task.kind]}.env')
    make = getattr(module, 'make_scene', None)
    return None if make is None else make(task, np.zeros(0) if goal is None else goal)


# Episodes of the rows of a vector environment: how they begin, which run, how they end.


_OPTIONS = ('first', 'count', 'reset_mask')


class Episodes:
    """One episode per row; almost free in a step in which none ends."""

    def __init__(self, n: int, horizon: int) -> None:
        self._horizon = horizon
        self._clock = 0  # control steps of the environment, whatever the row
        self._deadlines = np.zeros(n, dtype=np.int64)  # when each row reaches its horizon
        self._next_deadline = 0
        self.rows: Integers | None = None
        """Running rows in ascending order; None before the first reset."""
        self.terminated, self.truncated, self.failed = np.zeros((3, n), dtype=bool)

    @property
    def alive(self) -> Mask:
        """Rows that run. Shape (n,)."""
        mask = np.zeros(len(self._deadlines), dtype=bool)
        if self.rows is not None:
            mask[self.rows] = True
        return mask

    def begin(self, mask: Mask, keep_others: bool) -> None:
        """Start episodes in the masked rows; the others go on as they are, or stop."""
        self._deadlines[mask] = self._clock + self._horizon
        for flags in (self.terminated, self.truncated, self.failed):
            flags[mask] = False
        self._run_on(np.flatnonzero(mask | self.alive if keep_others else mask))

    def tick(self, terminated: Mask | None, truncated: Mask | None) -> None:
        """Count one step for the running rows and end those that must end."""
        self._clock += 1
        rows = self.rows
        assert rows is not None
        if terminated is not None and np.count_nonzero(terminated):
            self.terminated[rows] = terminated
        elif truncated is None and self._clock < self._next_deadline:
            return
        late = self._deadlines[rows] <= self._clock
        late = late if truncated is None else late | truncated
        self.truncated[rows] = late & ~self.terminated[rows]
        self._run_on(rows[~(self.terminated | self.truncated)[rows]])

    def _run_on(self, rows: Integers) -> None:
        self.rows = rows
        self._next_deadline = int(self._deadlines[rows].min()) if len(rows) else 0


def reset_mask(options: Mapping[str, Any], n: int) -> Mask:
    """Return which of n rows to reset. Shape (n,)."""
    for name in options:
        if name not in _OPTIONS:
            raise InvalidConfig(f"unknown reset option '{name}' (known: {', '.join(_OPTIONS)})")
    count = int(options.get('count', n))
    if not 1 <= count <= n:
        raise InvalidConfig(f'count must be between 1 and {n}, got {count}')
    mask = options.get('reset_mask')
    if mask is None:
        return np.arange(n) < count
    if np.shape(mask) != (n,):
        raise WrongShape(f'reset_mask has shape {np.shape(mask)}, expected {(n,)}')
    return np.asarray(mask, dtype=bool)


def row_streams(
    seed: int | Sequence[int | None], rows: Integers, first: int, n: int
) -> list[np.random.Generator | None]:
    """Return the random stream of each of these rows; None continues the current stream.

    One seed stands for a rollout, in which row r is trajectory first + r; a sequence has a seed
    for each of the n rows.
    """
    if isinstance(seed, int | np.integer):
        root = _checked(seed)
        return [generator(root, Purpose.RESET, first + int(row)) for row in rows]
    if len(seed) != n:
        raise WrongShape(f'{len(seed)} seeds for {n} rows')
    own = [seed[row] for row in rows]
    return [None if s is None else generator(_checked(s), Purpose.RESET, 0) for s in own]


def _checked(seed: int) -> int:
    if seed < 0:
        raise InvalidConfig(f'seed must not be negative, got {seed}')
    return int(seed)


class StepOutcome(NamedTuple):
    """What one control step did to the k running rows; None: to no row."""

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
    hold `count` (the number of rows that take part) or Gymnasium's `reset_mask` (the rows to
    reset).
    """

    metadata: ClassVar[dict[str, Any]] = {  # type: ignore[misc]
        'render_modes': ['rgb_array'],
        'autoreset_mode': AutoresetMode.DISABLED,
    }
    deterministic_resets: bool = False
    """True if every reset gives the same state for any seed."""
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
        self._owned: Workers | None = None  # only of an environment that stands alone

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

    def scene_state(self, row: int = 0) -> SceneState | None:
        """Return where everything in one row is; None if the task has no model to draw."""
        return None

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

        Returns rewards and success (None: no row), to be read before the next call. The rest of
        what `step` returns is in `observations`, `n_running`, `alive` and `ends`.
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
        """Current observations; read only. Shape (n, obs_dim)."""
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

    def own(self, pool: Workers) -> None:
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
        """Store the outcome of the running rows."""
        if outcome.failed is not None and np.count_nonzero(outcome.failed):
            outcome = self._mark_failed(outcome, outcome.failed, rows)
        self._show(outcome.observations, rows)
        self._episodes.tick(outcome.terminated, outcome.truncated)
        return outcome.rewards, outcome.success

    def _mark_failed(self, outcome: StepOutcome, failed: Mask, rows: Integers) -> StepOutcome:
        """End failed rows where they were before the step, without reward."""
        ended = failed if outcome.terminated is None else outcome.terminated | failed
        self._episodes.failed[rows] = failed
        return outcome._replace(
            observations=np.where(failed[:, None], self._observations[rows], outcome.observations),
            rewards=np.where(failed, 0.0, outcome.rewards),
            terminated=ended,
            success=None if outcome.success is None else outcome.success & ~failed,
        )

    def _show(self, observations: Array, rows: Integers) -> None:
        """Replace the observations of these rows, in a new array."""
        if len(rows) == self.num_envs:
            self._observations = np.array(observations)
        else:
            self._observations = self._observations.copy()
            self._observations[rows] = observations

    def _checked(self, actions: Any) -> Array:
        """Return the actions as float64; raise before anything moves if a row is wrong."""
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
