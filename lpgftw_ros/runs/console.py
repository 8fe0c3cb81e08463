"""How a run shows itself: a progress bar on a terminal, plain lines otherwise."""

from collections.abc import Iterator
from contextlib import contextmanager
import sys
import time
from typing import Any, Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from lpgftw_ros.runs.session import Session
from lpgftw_ros.runs.visits import remaining_iterations

_LINE_EVERY = 5.0
"""Seconds between two plain lines."""


class Display(Protocol):
    """Shows how far a session has come."""

    def update(self, session: Session) -> None:
        """Show the present state."""


@contextmanager
def display(session: Session) -> Iterator[Display]:
    """Return the display that fits where the output goes."""
    if sys.stderr.isatty():
        bar = _Bar(session)
        with bar.progress:
            yield bar
    else:
        yield _Lines()


def describe(row: dict[str, Any]) -> str:
    """Return one iteration in a few words."""
    rate = row['steps'] / max(row['timing']['sampling'], 1e-9)
    text = f'return {row["return_mean"]:.1f}  success {row["success"]:.2f}'
    if row['kind'] == 'iteration':
        text += f'  KL {row["kl"]:.4f}'
    return f'{text}  {rate:,.0f} steps/s'


class _Bar:
    """A bar over all iterations of all tasks."""

    def __init__(self, session: Session) -> None:
        columns = (
            TextColumn('{task.description}'),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn('{task.fields[detail]}'),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self.progress = Progress(*columns, console=Console(stderr=True), expand=True)
        self._total = len(session.config.tasks) * session.config.loop.iterations
        self._bar = self.progress.add_task('starting', total=self._total or None, detail='')

    def update(self, session: Session) -> None:
        """Move the bar."""
        loop, config = session.lifelong, session.config
        left = remaining_iterations(loop.visits, loop.queue, config)
        visit = loop.current or (loop.visits[-1] if loop.visits else None)
        name = f'{visit.number + 1}/{len(config.tasks)} {visit.task}' if visit else ''
        detail = describe(session.last_row) if session.last_row else ''
        self.progress.update(
            self._bar, completed=self._total - left, description=name, detail=detail
        )


class _Lines:
    """One line every few seconds, and one per finished task."""

    def __init__(self) -> None:
        self._last = 0.0
        self._shown: dict[str, Any] | None = None

    def update(self, session: Session) -> None:
        """Print a line if there is something new and the last one is some seconds old."""
        row = session.last_row
        if row is None or row is self._shown:
            return
        due = time.monotonic() - self._last >= _LINE_EVERY
        if not due and row['kind'] == 'iteration':
            return
        self._last, self._shown = time.monotonic(), row
        total = len(session.config.tasks)
        step = f'{row["iteration"] + 1}/{session.config.loop.iterations}'
        where = step if row['kind'] == 'iteration' else 'folded in'
        head = f'task {row["visit"] + 1}/{total} {row["task"]}  {where}'
        print(f'{head}  {describe(row)}', file=sys.stderr, flush=True)  # noqa: T201
