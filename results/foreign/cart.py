"""A task of one's own: push a cart to its goal."""

from typing import Any

import gymnasium
from gymnasium.spaces import Box
import numpy as np


class Cart(gymnasium.Env):
    """Position and speed are seen, the push is chosen."""

    observation_space = Box(-np.inf, np.inf, (2,))
    action_space = Box(-1.0, 1.0, (1,))

    def __init__(self, goal: float = 1.0) -> None:
        self.goal = goal

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Start near zero, at rest."""
        super().reset(seed=seed)
        self.state = np.array([self.np_random.uniform(-0.1, 0.1), 0.0])
        return self.state.astype(np.float32), {}

    def step(self, action: Any) -> Any:
        """Push."""
        where, speed = self.state
        speed = 0.9 * speed + 0.1 * float(action[0])
        self.state = np.array([where + 0.1 * speed, speed])
        distance = abs(self.state[0] - self.goal)
        return self.state.astype(np.float32), -distance, False, False, {'there': distance < 0.1}
