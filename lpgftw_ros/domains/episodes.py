"""Which rows of a vector environment still run, and how the others ended."""

import numpy as np

from lpgftw_ros.learning.arrays import Integers, Mask


class Episodes:
    """One episode per row; costs next to nothing in a step in which none ends."""

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
        """Let the running rows grow one step older and end those that must."""
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
