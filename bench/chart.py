"""Plain SVG line charts on logarithmic axes, for the benchmarks. No library: a chart is a few dozen lines of text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH, HEIGHT = 720, 440
LEFT, RIGHT, TOP, BOTTOM = 70, 200, 46, 56
COLOURS = ("#1f6f8b", "#c8553d", "#588157", "#6d597a", "#b08900")
STYLE = "font-family:system-ui,sans-serif;font-size:12px;fill:#222"


@dataclass(frozen=True)
class Series:
    """One line: its name in the legend, and its points. Lines that belong together may share a colour, one of them dashed."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: int | None = None
    dashed: bool = False


@dataclass(frozen=True)
class Chart:
    """A chart; `bars` are single points not to be passed, drawn as a tick with its words."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    bars: Sequence[tuple[float, float, str]] = field(default=())

    def svg(self) -> str:
        """The whole document."""
        xs = [x for line in self.series for x, _ in line.points] + [x for x, _, _ in self.bars]
        ys = [y for line in self.series for _, y in line.points] + [y for _, y, _ in self.bars]
        across = _Axis(*_decades(xs), start=LEFT, end=WIDTH - RIGHT)
        up = _Axis(*_decades(ys), start=HEIGHT - BOTTOM, end=TOP)
        parts = [*self._frame(across, up), *self._lines(across, up), *self._bars(across, up)]
        head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">'
        return "\n".join([head, f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>', *parts, "</svg>", ""])

    def _frame(self, across: _Axis, up: _Axis) -> list[str]:
        parts = [_text(LEFT, 24, self.title, weight="bold", size=14)]
        for value in across.ticks():
            x = across.at(value)
            parts += [
                _line(x, TOP, x, HEIGHT - BOTTOM, "#e4e4e4"),
                _text(x, HEIGHT - BOTTOM + 18, _short(value), anchor="middle"),
            ]
        for value in up.ticks():
            y = up.at(value)
            parts += [_line(LEFT, y, WIDTH - RIGHT, y, "#e4e4e4"), _text(LEFT - 8, y + 4, _short(value), anchor="end")]
        middle = (TOP + HEIGHT - BOTTOM) / 2
        parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, self.x_label, anchor="middle"))
        parts.append(_text(18, middle, self.y_label, anchor="middle", turn=f"rotate(-90 18 {middle})"))
        return parts

    def _lines(self, across: _Axis, up: _Axis) -> list[str]:
        parts = []
        for n, line in enumerate(self.series):
            colour = COLOURS[(n if line.colour is None else line.colour) % len(COLOURS)]
            dash = ' stroke-dasharray="5 4"' if line.dashed else ""
            at = [(across.at(x), up.at(y)) for x, y in line.points]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
            parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in at]
            y = TOP + 14 + 20 * n
            parts += [
                _line(WIDTH - RIGHT + 36, y - 4, WIDTH - RIGHT + 58, y - 4, colour, dash=dash),
                _text(WIDTH - RIGHT + 64, y, line.name),
            ]
        return parts

    def _bars(self, across: _Axis, up: _Axis) -> list[str]:
        parts = []
        for x, y, words in self.bars:
            at, height = across.at(x), up.at(y)
            parts.append(_line(at - 16, height, at + 16, height, "#222", width=3))
            parts.append(_text(at, height - 7, words, anchor="middle"))
        return parts


@dataclass(frozen=True)
class _Axis:
    low: int
    high: int
    start: float
    end: float

    def at(self, value: float) -> float:
        return self.start + (math.log10(value) - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        return [10.0**power for power in range(self.low, self.high + 1)]


def _decades(values: Sequence[float]) -> tuple[int, int]:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def _short(value: float) -> str:
    for factor, unit in ((1_000_000, " M"), (1_000, " k")):
        if value >= factor:
            return f"{value / factor:g}{unit}"
    return f"{value:g}"


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, *, width: float = 1.5, dash: str = "") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"{dash}/>'


def _text(
    x: float, y: float, words: str, *, anchor: str = "start", weight: str = "normal", size: int = 12, turn: str = ""
) -> str:
    extra = f' transform="{turn}"' if turn else ""
    look = f"{STYLE};font-weight:{weight};font-size:{size}px"
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" style="{look}"{extra}>{escape(words)}</text>'


@dataclass(frozen=True)
class BarChart:
    """Horizontal bars in groups, one panel per group with its own scale, since groups differ by orders of magnitude."""

    title: str
    unit: str
    groups: Sequence[tuple[str, Sequence[tuple[str, float]]]]

    def svg(self) -> str:
        """The whole document."""
        parts, y = [_text(LEFT - 50, 24, self.title, weight="bold", size=14)], TOP + 10
        for name, bars in self.groups:
            parts.append(_text(LEFT - 50, y, name, weight="bold"))
            for n, (label, value) in enumerate(bars):
                parts += self._bar(y + 10 + 22 * n, label, value, value / max(v for _, v in bars), COLOURS[n % len(COLOURS)])
            y += 22 * len(bars) + 36
        head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}">'
        return "\n".join([head, f'<rect width="{WIDTH}" height="{y}" fill="#fff"/>', *parts, "</svg>", ""])

    def _bar(self, y: float, label: str, value: float, share: float, colour: str) -> list[str]:
        left = LEFT + 110
        width = max(1.0, share * (WIDTH - left - 110))
        return [
            _text(left - 8, y + 12, label, anchor="end"),
            f'<rect x="{left}" y="{y:.1f}" width="{width:.1f}" height="16" fill="{colour}"/>',
            _text(left + width + 6, y + 12, f"{value:.2f} {self.unit}"),
        ]
