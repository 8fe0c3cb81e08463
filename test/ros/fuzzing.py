"""Messages made from the interface definitions: every field extreme, not finite, empty, huge."""

from array import array
from collections.abc import Iterator
import importlib
import random
from typing import Any

TEXTS = (
    '',
    'g-08',
    'x' * 20_000,
    '../../etc/passwd',
    '\n\t\x07',
    'ä€𝄞' * 50,
    "'; DROP",
    '~' * 300,
)
REALS = (0.0, -1.0, 1e308, -1e308, 5e-324, float('nan'), float('inf'), float('-inf'))
LENGTHS = (0, 1, 2, 17, 50, 100_000)
WIDTHS = {'int8': 8, 'int16': 16, 'int32': 32, 'int64': 64}


def value(kind: str, rng: random.Random, depth: int = 0) -> Any:
    """Return an odd value of a field's type, as `get_fields_and_field_types` names it."""
    if kind.startswith('sequence<'):
        return _sequence(kind[len('sequence<') : -1], rng, depth)
    if kind.endswith(']'):
        base, size = kind[:-1].split('[')
        return [value(base, rng) for _ in range(int(size))]
    if kind in ('float', 'double'):
        return rng.choice(REALS)
    if kind == 'boolean':
        return rng.random() < 0.5
    if kind == 'string':
        return rng.choice(TEXTS)
    if '/' in kind:
        package, name = kind.split('/')
        return message(getattr(importlib.import_module(f'{package}.msg'), name), rng, depth + 1)
    return _integer(kind, rng)


def _integer(kind: str, rng: random.Random) -> int:
    if kind == 'octet':
        return rng.choice((b'\x00', b'\xff'))
    bits = WIDTHS[kind.removeprefix('u')]
    if kind.startswith('u'):
        return rng.choice((0, 1, 2 ** (bits - 1), 2**bits - 1, rng.randrange(2**bits)))
    return rng.choice((0, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))))


def _sequence(kind: str, rng: random.Random, depth: int) -> Any:
    length = rng.choice(LENGTHS if '/' not in kind and kind != 'string' else (0, 1, 3))
    codes = {'double': 'd', 'float': 'f', 'uint8': 'B', 'int64': 'q', 'uint32': 'I'}
    if kind in codes:
        return array(codes[kind], [value(kind, rng)] * length)
    return [value(kind, rng, depth) for _ in range(length)]


def message(kind: type, rng: random.Random, depth: int = 0) -> Any:
    """Return a message in which some fields, or all, are odd and the others have their default."""
    made, share = kind(), rng.choice((0.2, 0.5, 1.0))
    for name, field in kind.get_fields_and_field_types().items():
        if depth < 4 and rng.random() < share:
            setattr(made, name, value(field, rng, depth))
    return made


def messages(kind: type, rng: random.Random, count: int) -> Iterator[Any]:
    """Return so many odd messages of a type."""
    return (message(kind, rng) for _ in range(count))
