"""Curves, heat maps and tables as SVG and HTML text: nothing to fetch, NaN leaves a gap."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
import math

import numpy as np

from lpgftw_ros.learning.arrays import Array

WIDTH = 440
"""Units of a chart's width; it is scaled to the width of the panel."""
INK, FAINT, GRID = '#222', '#777', '#e3e3e3'
BLUE, ORANGE, GREEN, GREY, RED = '#0072B2', '#D55E00', '#009E73', '#9a9a9a', '#b00020'
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 18, 8, 36


@dataclass(frozen=True, slots=True)
class Line:
    """One curve of a chart."""

    label: str
    values: Array
    """One number per iteration, NaN where there is none."""
    colour: str = BLUE
    width: float = 2.0
    dash: str = ''
    opacity: float = 1.0
    in_legend: bool = True


def line_chart(
    lines: Sequence[Line],
    *,
    x_label: str,
    y_label: str,
    first: int = 0,
    height: int = 210,
    y_range: tuple[float, float] | None = None,
) -> str:
    """Return curves over their index, counted from `first`; the axes span all finite values."""
    known = [line for line in lines if np.isfinite(line.values).any()]
    if not known:
        return note(f'{y_label}: nothing measured yet')
    low, high = y_range or _span([line.values for line in known])
    length = max(max(len(line.values) for line in known) - 1, 1)
    inner_w, inner_h = WIDTH - _LEFT - _RIGHT, height - _TOP - _BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        share = (min(max(y, low), high) - low) / (high - low)
        return _LEFT + inner_w * (x - first) / length, _TOP + inner_h * (1.0 - share)

    parts = [_frame(place, (low, high), (first, first + length), height, x_label, y_label)]
    parts += [_path(line, place, first) for line in known]
    named = [line for line in known if line.in_legend]
    return _svg(height, parts, f'{y_label} over {x_label}') + _legend(named)


def _span(values: Sequence[Array]) -> tuple[float, float]:
    finite = np.concatenate([v[np.isfinite(v)] for v in values])
    low, high = float(finite.min()), float(finite.max())
    if high - low < 1e-9 * max(1.0, abs(high)):
        return low - 0.5, high + 0.5
    margin = 0.05 * (high - low)
    return low - margin, high + margin


def _ticks(low: float, high: float, wanted: int = 4) -> list[float]:
    raw = (high - low) / wanted
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * f for f in (1, 2, 2.5, 5, 10) if size * f >= raw)
    first = math.ceil(low / step)
    return [step * i for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _frame(
    place: object,
    y_span: tuple[float, float],
    x_span: tuple[int, int],
    height: int,
    x_label: str,
    y_label: str,
) -> str:
    assert callable(place)
    parts = []
    for y in _ticks(*y_span):
        _, py = place(0, y)
        parts.append(
            f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{py:.1f}" y2="{py:.1f}" '
            f'stroke="{GRID}"/>{_text(_LEFT - 5, py + 4, short(y), "end")}'
        )
    begin, end = x_span
    for x in (begin, *(x for x in _ticks(begin, end, 5) if x - begin > 0.1 * (end - begin))):
        if x == int(x):
            px, _ = place(x, y_span[0])
            parts.append(_text(px, height - _BOTTOM + 16, short(x), 'middle'))
    parts.append(_text((WIDTH + _LEFT) / 2, height - 4, x_label, 'middle', FAINT))
    middle = (height - _BOTTOM) / 2
    parts.append(
        f'<text x="12" y="{middle:.0f}" transform="rotate(-90 12 {middle:.0f})" '
        f'text-anchor="middle" fill="{FAINT}">{escape(y_label)}</text>'
    )
    return ''.join(parts)


def _path(line: Line, place: object, first: int) -> str:
    assert callable(place)
    words, pen_down = [], False
    for x, y in enumerate(line.values, first):
        if not math.isfinite(y):
            pen_down = False
            continue
        px, py = place(x, float(y))
        words.append(f'{"L" if pen_down else "M"}{px:.1f} {py:.1f}')
        if not pen_down:
            words.append('h0')  # a lone point shows as a dot
        pen_down = True
    dash = f' stroke-dasharray="{line.dash}"' if line.dash else ''
    return (
        f'<path d="{" ".join(words)}" fill="none" stroke="{line.colour}" '
        f'stroke-width="{line.width}" stroke-linecap="round" opacity="{line.opacity}"{dash}>'
        f'<title>{escape(line.label)}</title></path>'
    )


def _legend(lines: Sequence[Line]) -> str:
    items = []
    for line in lines:
        dash = f' stroke-dasharray="{line.dash}"' if line.dash else ''
        items.append(
            f'<span style="margin-right:1em;white-space:nowrap"><svg width="26" height="8">'
            f'<path d="M1 4 H25" stroke="{line.colour}" stroke-width="{line.width + 0.5}" '
            f'opacity="{line.opacity}"{dash}/></svg> {escape(line.label)}</span>'
        )
    return f'<div style="font-size:12px;color:{INK};padding:0 4px">{"".join(items)}</div>'


def heat_map(
    values: Array, rows: Sequence[str], columns: Sequence[str], *, limit: float, label: str
) -> str:
    """Return a matrix as coloured cells: blue negative, white zero, red positive."""
    n, k = values.shape
    numbers = k <= 8
    left = min(190, 12 + 7 * max(len(name) for name in rows))
    cell_w, cell_h = (WIDTH - left - 4) / k, 20 if n <= 24 else 13
    size = 12 if n <= 24 else 10
    upright = max(len(c) for c in columns) * 7 < cell_w
    top = 20 if upright else 8 + 6.5 * max(len(c) for c in columns)
    parts = []
    for j, column in enumerate(columns):
        x = left + cell_w * (j + 0.5)
        turn = '' if upright else f' transform="rotate(-90 {x + 4:.1f} {top - 4:.1f})"'
        anchor = 'middle' if upright else 'start'
        parts.append(
            f'<text x="{x if upright else x + 4:.1f}" y="{top - 5:.1f}" font-size="{size}" '
            f'text-anchor="{anchor}" fill="{FAINT}"{turn}>{escape(column)}</text>'
        )
    for i, row in enumerate(rows):
        y = top + cell_h * i
        parts.append(_text(left - 5, y + cell_h / 2 + 4, row, 'end', INK, size))
        for j in range(k):
            value = float(values[i, j])
            fill, ink = _heat(value, limit)
            x = left + cell_w * j
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{cell_w:.1f}" height="{cell_h}" '
                f'fill="{fill}" stroke="#fff"><title>{escape(row)}, {escape(columns[j])}: '
                f'{short(value)}</title></rect>'
            )
            if numbers:
                middle = x + cell_w / 2
                parts.append(_text(middle, y + cell_h / 2 + 4, short(value), 'middle', ink, size))
    return _svg(int(top + cell_h * n + 4), parts, label)


def _heat(value: float, limit: float) -> tuple[str, str]:
    """Return the colour of a cell and of the number on it."""
    if not math.isfinite(value):
        return '#eeeeee', INK
    share = min(abs(value) / limit, 1.0) if limit > 0.0 else 0.0
    end = np.array((178, 24, 43) if value > 0 else (33, 102, 172))
    red, green, blue = (255 + (end - 255) * share).astype(int)
    return f'rgb({red},{green},{blue})', '#fff' if share > 0.6 else INK


def table(head: Sequence[str], rows: Sequence[Sequence[str]], bold: int | None = None) -> str:
    """Return a table: first column left, numbers right, one row in bold; cells are plain text."""
    cell = 'padding:2px 4px;border-bottom:1px solid #eee'  # narrow screens break at spaces

    def line(words: Sequence[str], tag: str, weight: str) -> str:
        cells = [
            f'<{tag} style="{cell};text-align:{"right" if i else "left"};font-weight:{weight}">'
            f'{escape(word)}</{tag}>'
            for i, word in enumerate(words)
        ]
        return f'<tr>{"".join(cells)}</tr>'

    body = [line(words, 'td', '700' if i == bold else '400') for i, words in enumerate(rows)]
    return (
        f'<div style="overflow-x:auto"><table style="border-collapse:collapse;font-size:13px;'
        f'color:{INK};width:100%">{line(head, "th", "600")}{"".join(body)}</table></div>'
    )


def bar(label: str, share: float, right: str, colour: str = BLUE) -> str:
    """Return a labelled bar from 0 to 1."""
    width = 100.0 * min(max(share, 0.0), 1.0) if math.isfinite(share) else 0.0
    return (
        f'<div style="font-size:13px;color:{INK};padding:2px 4px"><div style="display:flex;'
        f'justify-content:space-between;gap:1em"><span>{escape(label)}</span>'
        f'<span style="text-align:right">{escape(right)}</span></div>'
        f'<div style="background:#eee;height:7px;border-radius:4px"><div style="height:7px;'
        f'width:{width:.1f}%;border-radius:4px;background:{colour}"></div></div></div>'
    )


def lines(texts: Sequence[str], colour: str = INK, weight: int = 400) -> str:
    """Return lines of plain text."""
    style = f'font-size:13px;color:{colour};padding:1px 4px;font-weight:{weight}'
    return ''.join(f'<div style="{style}">{escape(text)}</div>' for text in texts)


def heading(text: str) -> str:
    """Return a small heading."""
    return (
        f'<div style="font-size:13px;font-weight:600;color:{INK};padding:8px 4px 2px">'
        f'{escape(text)}</div>'
    )


def note(text: str) -> str:
    """Return a line in place of missing content."""
    return lines((text,), FAINT)


def short(value: float) -> str:
    """Return a number in few characters; a dash for NaN."""
    if not math.isfinite(value):
        return '-'
    if abs(value) >= 1e6:
        return f'{value / 1e6:.3g}M'
    if abs(value) >= 1e4:
        return f'{value / 1e3:.3g}k'
    return f'{value:.3g}' if abs(value) < 100 else f'{value:.0f}'


def percent(share: float) -> str:
    """Return a share in per cent; a dash for NaN."""
    return f'{share:.0%}' if math.isfinite(share) else '-'


def duration(seconds: float) -> str:
    """Return seconds in readable form; a dash for NaN."""
    if not math.isfinite(seconds):
        return '-'
    if seconds < 90:
        return f'{seconds:.0f} s'
    if seconds < 5400:
        return f'{seconds / 60:.0f} min'
    return f'{seconds / 3600:.1f} h'


def _text(
    x: float, y: float, text: str, anchor: str, colour: str = INK, size: int | None = None
) -> str:
    scale = '' if size is None else f' font-size="{size}"'
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"{scale}>'
        f'{escape(text)}</text>'
    )


def _svg(height: int, parts: Sequence[str], label: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" width="100%" role="img" '
        f'aria-label="{escape(label, quote=True)}" font-family="sans-serif" font-size="12" '
        f'style="background:#fff;display:block">{"".join(parts)}</svg>'
    )
