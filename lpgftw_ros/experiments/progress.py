"""Show how an experiment goes: a live table on a terminal, plain lines otherwise."""

from collections.abc import Callable, Mapping
import json
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lpgftw_ros.experiments.sweep import CellState, CellStatus

_COLOURS = {
    CellState.WAITING: 'dim',
    CellState.RUNNING: 'cyan',
    CellState.SKIPPED: 'green dim',
    CellState.FINISHED: 'green',
    CellState.FAILED: 'bold red',
    CellState.BLOCKED: 'yellow',
    CellState.FOREIGN: 'bold red',
}
_TAIL_BYTES = 4096


def last_iteration(folder: Path) -> Mapping[str, Any] | None:
    """Return the newest complete metrics row of a running cell, without reading the whole file."""
    try:
        with (folder / 'metrics.jsonl').open('rb') as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            lines = file.read().decode('utf-8', errors='replace').splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        return row if isinstance(row, dict) else None
    return None


def describe(status: CellStatus) -> str:
    """Say in a few words what a cell is doing or why it stopped."""
    if status.state is not CellState.RUNNING:
        return status.message
    row = last_iteration(status.folder)
    if row is None:
        return 'starting'
    return (
        f'task {row.get("visit", 0) + 1} ({row.get("task")}), iteration {row.get("iteration")}, '
        f'return {row.get("return_mean", float("nan")):.4g}'
    )


def status_table(statuses: Mapping[str, CellStatus]) -> Table:
    """Return the table of all cells."""
    table = Table(box=None, pad_edge=False)
    for heading in ('cell', 'state', 'minutes', ''):
        table.add_column(heading, justify='right' if heading == 'minutes' else 'left')
    for name, status in statuses.items():
        minutes = f'{status.seconds / 60:.1f}' if status.seconds else ''
        state = Text(status.state.value, style=_COLOURS[status.state])
        table.add_row(name, state, minutes, Text(describe(status)))
    return table


class PlainProgress:
    """One line per change."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def __enter__(self) -> 'PlainProgress':
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def watch(self, statuses: Mapping[str, CellStatus]) -> None:
        """Say what is already there."""
        for status in statuses.values():
            if status.state is not CellState.WAITING:
                self.change(status)

    def change(self, status: CellStatus) -> None:
        """Write the new state of a cell."""
        text = f': {status.message}' if status.message else ''
        self._write(f'{status.cell.name}: {status.state.value}{text}')


class LiveProgress:
    """A table that is redrawn in place, about twice a second."""

    def __init__(self, console: Console) -> None:
        self._statuses: Mapping[str, CellStatus] = {}
        self._live = Live(
            console=console,
            get_renderable=lambda: status_table(self._statuses),
            refresh_per_second=2,
        )

    def __enter__(self) -> 'LiveProgress':
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def watch(self, statuses: Mapping[str, CellStatus]) -> None:
        """Show these cells from now on."""
        self._statuses = statuses

    def change(self, status: CellStatus) -> None:
        """Redraw at once."""
        self._live.refresh()
