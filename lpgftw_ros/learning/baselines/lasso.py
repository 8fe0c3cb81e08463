"""A small lasso, by coordinate descent."""

import numpy as np

from lpgftw_ros.learning.arrays import Array


def lasso(
    G: Array, c: Array, weight: float, *, tolerance: float = 1e-12, max_sweeps: int = 10_000
) -> Array:
    r"""Return the s that minimises :math:`\frac12 s^\top G s - c^\top s + w \|s\|_1`.

    One coordinate at a time has the closed solution: soft-threshold what the others leave. At
    the solution :math:`|c - G s|_j \le w`, with equality and the sign of :math:`s_j` where that
    is not zero.
    """
    s = np.zeros_like(c)
    used = np.flatnonzero(np.diagonal(G) > 0.0)
    for _ in range(max_sweeps):
        largest = 0.0
        for j in used:
            left = c[j] - G[j] @ s + G[j, j] * s[j]
            new = np.sign(left) * max(abs(left) - weight, 0.0) / G[j, j]
            largest = max(largest, abs(new - s[j]) * np.sqrt(G[j, j]))
            s[j] = new
        if largest <= tolerance * (1.0 + np.abs(c).max()):
            break
    return s
