"""TensorBoard events beside metrics.jsonl, on request."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_SCALARS = (
    'return_mean',
    'return_min',
    'return_max',
    'success',
    'kl',
    'step_length',
    'value_error',
)


@contextmanager
def event_writer(folder: Path | None) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Return a function that writes metrics rows as events; it does nothing without a folder."""
    if folder is None:
        yield lambda row: None
        return
    writer: Any = None

    def write(row: dict[str, Any]) -> None:
        nonlocal writer
        if writer is None:
            from torch.utils.tensorboard import SummaryWriter

            writer = SummaryWriter(str(folder / 'tensorboard'))  # type: ignore[no-untyped-call]
        for name in _SCALARS:
            if row.get(name) is not None:
                tag = f'{row["visit"]:02d}-{row["task"]}/{name}'
                writer.add_scalar(tag, row[name], row['iteration'])

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()
