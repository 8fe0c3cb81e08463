"""The paper's bars: start, tune, update, final of each method, beside the published ones."""

from pathlib import Path

from matplotlib.axes import Axes

from lpgftw_ros.experiments import style
from lpgftw_ros.experiments.groups import display_name, SuiteRuns
from lpgftw_ros.experiments.published import named, published, PUBLISHED_STAGE


def plot_bars(group: SuiteRuns, folder: Path) -> Path | None:
    """Draw the four bars of each method; success below where any task knows it."""
    labels = [
        label
        for label in group.methods
        if any(group.stage(label, stage) for stage in PUBLISHED_STAGE.values())
    ]
    if not labels:
        return None
    successes = any(
        group.stage_success(label, stage) for label in labels for stage in PUBLISHED_STAGE.values()
    )
    panels = 2 if successes else 1
    width = max(5.6, 1.5 + 0.32 * len(labels) * len(PUBLISHED_STAGE) + 1.4)
    figure, axes = style.new_figure(panels, 1, width, 3.1 * panels + 0.5)
    _draw_returns(axes[0], group, labels)
    if successes:
        _draw_success(axes[1], group, labels)
    style.legend_below(figure, axes[0])
    figure.suptitle(f'{group.suite}: average over tasks', fontweight='bold')
    return style.save(figure, folder, f'{group.suite}-bars')


def _positions(labels: list[str], index: int) -> tuple[list[float], float]:
    width = 0.8 / len(labels)
    offset = (index - (len(labels) - 1) / 2) * width
    return [stage + offset for stage in range(len(PUBLISHED_STAGE))], width


def _draw_returns(axis: Axes, group: SuiteRuns, labels: list[str]) -> None:
    theirs_drawn = False
    for index, label in enumerate(labels):
        positions, width = _positions(labels, index)
        colour, named = style.colour(label, index), False
        for x, (stage, ours_stage) in zip(positions, PUBLISHED_STAGE.items(), strict=True):
            mean = group.stage(label, ours_stage)
            if mean is not None:
                name = None if named else display_name(label)
                axis.bar(x, mean.value, 0.92 * width, color=colour, label=name)
                named = True
                if mean.n > 1:
                    axis.errorbar(x, mean.value, mean.error, color='#222222', capsize=2, lw=1)
            theirs = published(group.suite, label, stage)
            if theirs is not None and theirs.mean == theirs.mean and _near(group, theirs.mean):
                name = None if theirs_drawn else 'published'
                axis.errorbar(
                    *(x, theirs.mean, theirs.standard_error or 0.0),
                    marker='D',
                    markersize=5,
                    markerfacecolor='white',
                    markeredgecolor='#222222',
                    ecolor='#222222',
                    linestyle='none',
                    label=name,
                )
                theirs_drawn = True
    axis.axhline(0.0, color='#888888', lw=0.8)
    _finish(axis, 'return')
    style.thousands(axis)


def _near(group: SuiteRuns, value: float) -> bool:
    """Return False for published values so far off (diverged) that they would hide all others."""
    ours = [group.stage(m, s) for m in group.methods for s in PUBLISHED_STAGE.values()]
    largest = max((abs(mean.value) for mean in ours if mean is not None), default=0.0)
    return abs(value) <= 10.0 * max(largest, 1000.0)


def _draw_success(axis: Axes, group: SuiteRuns, labels: list[str]) -> None:
    for index, label in enumerate(labels):
        positions, width = _positions(labels, index)
        for x, stage in zip(positions, PUBLISHED_STAGE.values(), strict=True):
            success = group.stage_success(label, stage)
            if success is not None:
                axis.bar(x, success, 0.92 * width, color=style.colour(label, index))
    axis.set_ylim(0.0, 1.05)
    _finish(axis, 'success rate')


def _finish(axis: Axes, name: str) -> None:
    axis.set_ylabel(name)
    axis.set_xticks(range(len(PUBLISHED_STAGE)), [named(stage) for stage in PUBLISHED_STAGE])
    axis.set_xlim(-0.55, len(PUBLISHED_STAGE) - 0.45)
    axis.grid(visible=False, axis='x')
