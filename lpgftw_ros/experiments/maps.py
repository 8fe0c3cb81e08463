"""Figures of matrices: what tasks take of the basis, and how diverse tasks are."""

from pathlib import Path

from matplotlib.axes import Axes
import numpy as np

from lpgftw_ros.experiments import style
from lpgftw_ros.experiments.coefficients import Coefficients
from lpgftw_ros.experiments.diversity import CrossReturns
from lpgftw_ros.experiments.explain import column_use
from lpgftw_ros.learning.arrays import Array

MOST_LABELS = 24
"""Rows up to which cells carry their number and rows their task's name in full size."""


def plot_coefficients(found: Coefficients, folder: Path, name: str, title: str) -> Path | None:
    """Draw S as a heat map with the use of each column above it."""
    n, k = found.values.shape
    if n == 0 or k == 0:
        return None
    height = max(1.2, 0.27 * n)
    figure, (use, heat) = style.new_figure(
        2, 1, max(4.8, 2.6 + 0.75 * k), 2.1 + height, (1.0, height)
    )
    shares = column_use(found.values)
    use.bar(range(k), shares, color=style.COLOURS['lpg-ftw'], width=0.8)
    for column, share in enumerate(shares):
        use.text(column, share, f'{share:.0%}', ha='center', va='bottom', fontsize=8)
    use.set(xlim=(-0.5, k - 0.5), xticks=[], ylabel='use', ylim=(0, max(shares) * 1.3 + 1e-9))
    use.grid(visible=False)
    limit = float(np.abs(found.values).max()) or 1.0
    image = heat.imshow(found.values, cmap='RdBu_r', vmin=-limit, vmax=limit, aspect='auto')
    _label_cells(heat, found.values, limit)
    heat.set_xticks(range(k), [str(column + 1) for column in range(k)])
    heat.set_yticks(range(n), found.tasks, fontsize=8 if n <= MOST_LABELS else 5)
    heat.set_xlabel('column of L')
    heat.grid(visible=False)
    figure.colorbar(image, ax=heat, label='s times column norm', shrink=0.9)
    figure.suptitle(title, fontweight='bold')
    return style.save(figure, folder, name)


def _label_cells(axis: Axes, values: Array, limit: float) -> None:
    if len(values) > MOST_LABELS:
        return
    for (i, j), value in np.ndenumerate(values):
        dark = abs(value) > 0.6 * limit
        axis.text(
            *(j, i, f'{value:.2g}'),
            ha='center',
            va='center',
            fontsize=7,
            color='white' if dark else '#333333',
        )


def plot_diversity(found: CrossReturns, folder: Path, name: str, title: str) -> Path | None:
    """Draw the relative return of each policy on each task, and the gap per task."""
    n = len(found.tasks)
    if n < 2:
        return None
    order = sorted(range(n), key=lambda i: found.tasks[i])
    names = [found.tasks[i] for i in order]
    own = np.diag(found.returns)
    relative = (found.returns / np.where(own > 0.0, own, np.nan))[np.ix_(order, order)].T
    figure, axes = style.new_figure(
        1, 2, 5.4 + 0.26 * n, 1.6 + max(1.6, 0.26 * n), width_ratios=(2.6 + 0.26 * n, 2.8)
    )
    _draw_cross(axes[0], relative, names)
    _draw_gaps(axes[1], found.gaps()[order])
    figure.suptitle(title, fontweight='bold')
    return style.save(figure, folder, name)


def _draw_cross(axis: Axes, relative: Array, names: list[str]) -> None:
    """Rows are tasks, columns the policies run on them."""
    image = axis.imshow(relative, cmap='viridis', vmin=0.0, vmax=1.0, aspect='auto')
    size = 8 if len(names) <= MOST_LABELS else 5
    axis.set_xticks(range(len(names)), names, rotation=90, fontsize=size)
    axis.set_yticks(range(len(names)), names, fontsize=size)
    axis.set(xlabel='policy learned alone on', ylabel='task')
    axis.grid(visible=False)
    bar = axis.figure.colorbar(image, ax=axis, location='left', extend='both', shrink=0.8)
    bar.set_label("return / own policy's")


def _draw_gaps(axis: Axes, gaps: Array) -> None:
    n, known = len(gaps), gaps[np.isfinite(gaps)]
    axis.barh(range(n), 100.0 * gaps, color=style.COLOURS['lpg-ftw'], height=0.75)
    axis.set_yticks([])
    axis.set_ylim(n - 0.5, -0.5)  # rows line up with those of the map
    axis.set_xlabel("loss with others' policies, %")
    if len(known):
        mean = 100.0 * float(known.mean())
        axis.set_title(f'mean {mean:.0f} %')
        axis.axvline(mean, color='#222222', lw=1, ls='--')
    axis.grid(visible=False, axis='y')
