"""Bars for the terminal, and a wrapper that keeps any output narrow, clean and writable where only ASCII is known.

Everything is drawn with characters of width one, so that the replacement keeps every column in place.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style

FULL, TRACK = "█", "─"
MINUS, DASH = "\N{MINUS SIGN}", "\N{EN DASH}"
EIGHTHS = " ▏▎▍▌▋▊▉"
ASCII = str.maketrans(
    {FULL: "#", TRACK: ".", MINUS: "-", DASH: "-", "·": "|", "…": "~", "→": ">", "←": "<", "≥": ">", "✓": "+", "✗": "x"}
    | dict.fromkeys("▏▎▍", "|")
    | dict.fromkeys("▌▋▊▉", "#")
)


@dataclass(frozen=True)
class Bar:
    """A bar that fills its column up to `most` cells; `track` draws the empty part, for a scale with a known end."""

    ratio: float
    style: str
    most: int = 60
    track: bool = False

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(4, options.max_width), min(self.most, options.max_width))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(options.max_width, self.most)
        drawn = self.draw(width)
        yield Segment(drawn, console.get_style(self.style))
        if len(drawn) < width:
            yield Segment((TRACK if self.track else " ") * (width - len(drawn)), Style(dim=True))

    def draw(self, width: int) -> str:
        """The filled part, in eighths of a cell; whatever is not nothing shows."""
        eighths = round(min(max(self.ratio, 0.0), 1.0) * width * 8)
        if self.ratio > 0:
            eighths = max(eighths, 1)
        full, part = divmod(eighths, 8)
        return FULL * full + (EIGHTHS[part] if part else "")


@dataclass(frozen=True)
class Tidy:
    """Renders its content no wider than `most`, without trailing blanks, and with nothing that the output cannot encode."""

    content: RenderableType
    most: int = 110

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        narrow = options.update_width(min(options.max_width, self.most))
        for line in console.render_lines(self.content, narrow, pad=False):
            for segment in _without_trailing_blanks(line):
                yield Segment(_encodable(segment.text, options), segment.style, segment.control)
            yield Segment.line()


def _without_trailing_blanks(line: list[Segment]) -> list[Segment]:
    kept = list(line)
    while kept and not kept[-1].control and not kept[-1].text.rstrip():
        kept.pop()
    if kept and not kept[-1].control:
        kept[-1] = Segment(kept[-1].text.rstrip(), kept[-1].style)
    return kept


def _encodable(text: str, options: ConsoleOptions) -> str:
    if not options.ascii_only:
        return text
    return text.translate(ASCII).encode(options.encoding, "replace").decode(options.encoding)
