"""One look for all figures: colour-blind safe, readable in grey, PNG and PDF."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLOURS = {
    'lpg-ftw': '#0072B2',
    'stl': '#E69F00',
    'ewc': '#009E73',
    'ewc-h': '#56B4E9',
    'er': '#CC79A7',
    'pg-ella': '#D55E00',
}
"""Okabe-Ito colours; a method keeps its colour in every figure."""
SPARE = ('#000000', '#7F7F7F', '#44AA99', '#882255', '#999933', '#332288', '#661100', '#AA4499')
LINES = {'lpg-ftw': '-', 'stl': '--', 'ewc': '-.', 'ewc-h': (0, (3, 1, 1, 1)), 'er': ':'}
"""Line styles carry the difference where colour does not."""

RC: Any = {
    'figure.dpi': 100,
    'savefig.dpi': 160,
    'font.size': 10,
    'axes.titlesize': 11,
    'axes.labelsize': 10,
    'axes.spines.top': False,
    'axes.spines.right': False,
    'axes.grid': True,
    'axes.axisbelow': True,
    'grid.color': '#E4E4E4',
    'grid.linewidth': 0.8,
    'lines.linewidth': 1.8,
    'legend.frameon': False,
    'pdf.fonttype': 42,
    'svg.hashsalt': 'lpgftw',
}


def colour(label: str, index: int = 0) -> str:
    """Return the colour of a method; variants without one of their own take a spare."""
    return COLOURS.get(label, SPARE[index % len(SPARE)])


def line(label: str) -> str | tuple[int, tuple[int, ...]]:
    """Return the line style of a method."""
    return LINES.get(label, (0, (5, 2)))  # type: ignore[return-value]


@contextmanager
def look() -> Iterator[None]:
    """Draw with the common look inside this block."""
    with matplotlib.rc_context(RC):
        yield


def new_figure(
    rows: int,
    columns: int,
    width: float,
    height: float,
    height_ratios: Sequence[float] | None = None,
    width_ratios: Sequence[float] | None = None,
) -> tuple[Figure, list[Axes]]:
    """Return a figure and its axes as a flat list."""
    figure = Figure(figsize=(width, height), layout='constrained')
    axes = figure.subplots(
        rows, columns, squeeze=False, height_ratios=height_ratios, width_ratios=width_ratios
    )
    return figure, list(axes.ravel())


def legend_below(figure: Figure, axis: Axes) -> None:
    """Put the legend of one axis below the figure, the published markers last."""
    handles, names = axis.get_legend_handles_labels()
    order = sorted(range(len(names)), key=lambda i: names[i] == 'published')
    figure.legend(
        [handles[i] for i in order],
        [names[i] for i in order],
        loc='outside lower center',
        ncols=min(6, len(names)),
    )


def save(figure: Figure, folder: Path, name: str) -> Path:
    """Write a figure as PNG and PDF; without dates, so the same data give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f'{name}.png', metadata={'Software': None})
    figure.set_layout_engine('none')  # the layout is found, finding it again is slow
    figure.savefig(folder / f'{name}.pdf', metadata={'CreationDate': None})
    return folder / f'{name}.png'


def thousands(axis: Axes) -> None:
    """Write large values of the vertical axis as 10k."""
    low, high = axis.get_ylim()
    if max(abs(low), abs(high)) >= 10_000:
        axis.yaxis.set_major_formatter(
            lambda value, _: f'{value / 1000:g}k' if abs(value) >= 1e-9 else '0'
        )
