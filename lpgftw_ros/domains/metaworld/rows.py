"""Rows of one Meta-World task, stepped one after another in one process.

A row is a vector of MuJoCo's state (time, positions, velocities, warm start, mocap target) plus
the few Python fields a reward remembers; it is loaded, stepped and stored. One `MjData` for all
rows is as fast as one each, and saves 15 MB per row.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lpgftw_ros.domains.metaworld.engine import engine, REWARD_ERRORS, Scene
from lpgftw_ros.domains.metaworld.fast import Floats


class MetaWorldRows:
    """Some rows of a vector environment, with their shared arrays."""

    def __init__(
        self,
        arrays: Mapping[str, Any],
        *,
        task: str,
        reward: str,
        observation: str,
        vectors: Sequence[Sequence[float]],
    ) -> None:
        self.arrays = self._arrays = arrays
        self._engine = engine(task)
        self._reward, self._vectors = reward, vectors
        self._scenes: dict[int, Scene] = {}
        n = len(arrays['rewards'])
        self._states = np.zeros((n, self._engine.state_size))
        self._frames = np.zeros((n, 18)) if observation == 'full39' else None
        self._row_scenes: list[Scene | None] = [None] * n
        self._memories: list[dict[str, Any]] = [{} for _ in range(n)]

    def _scene(self, index: int) -> Scene:
        if index not in self._scenes:
            self._scenes[index] = self._engine.build(self._vectors[index], self._reward)
        return self._scenes[index]

    def reset(self) -> None:
        """Restore the rows marked in `active` to the scene named in `scenes`."""
        for row in np.flatnonzero(self._arrays['active']).tolist():
            scene = self._scene(int(self._arrays['scenes'][row]))
            self._row_scenes[row] = scene
            self._states[row] = scene.state
            self._memories[row] = {name: scene.fields[name] for name in self._engine.remembered}
            if self._frames is not None:
                self._frames[row] = scene.observation[:18]
            self._show(row, scene.observation)

    def _show(self, row: int, obs: Floats) -> None:
        """Write the policy's part of a 39-D observation."""
        seen = self._arrays['observations'][row]
        if self._frames is None:
            seen[:3], seen[3:] = obs[0:3], obs[4:7]
        else:
            seen[:] = obs

    def step(self) -> None:
        """Advance the rows marked in `active` by one control step."""
        arrays, sim, states = self._arrays, self._engine, self._states
        rows = np.flatnonzero(arrays['active'])
        times, refused = states[rows, 0], []
        for row, action in zip(rows.tolist(), arrays['actions'][rows], strict=True):
            scene = self._row_scenes[row]
            assert scene is not None, 'step before reset'
            sim.enter(scene)
            sim.advance(states[row], action.tolist())
            obs = sim.observe(None if self._frames is None else self._frames[row])
            self._show(row, obs)
            try:
                arrays['rewards'][row] = self._evaluate(row, action, obs)
                arrays['success'][row] = sim.criterion(sim.env, obs)
            except REWARD_ERRORS:
                refused.append(row)
        failed = sim.blown_up(times, states[rows]) | ~np.isfinite(arrays['rewards'][rows])
        arrays['failed'][rows] = failed
        arrays['failed'][refused] = True

    def _evaluate(self, row: int, action: Floats, obs: Floats) -> Any:
        """Return upstream's reward; what it remembers belongs to the row."""
        sim = self._engine
        if not sim.remembered:
            return sim.env.compute_reward(action, obs)[0]
        own = sim.env.__dict__
        own.update(self._memories[row])
        reward = sim.env.compute_reward(action, obs)[0]
        self._memories[row] = {name: own[name] for name in sim.remembered}
        return reward

    def state(self, row: int) -> Floats:
        """Return the physics state of one row."""
        state: Floats = self._states[row].copy()
        return state

    def close(self) -> None:
        """Free nothing: the engine stays for the next environment of this task."""
