"""The course of a run as an SVG: load, pods, nodes and dollars an hour over time; pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from provisioner.lab.harness.course import Moment, changes
from provisioner.values import svg

_WIDTH, _LEFT, _RIGHT, _TOP, _PANEL, _GAP = 960, 90, 20, 48, 110, 26
_ROOM: Final = _WIDTH - _LEFT - _RIGHT
_STYLE: Final = ".axis{stroke:#bbb;stroke-width:1}.line{fill:none;stroke-width:2}"


@dataclass(frozen=True, slots=True)
class _Line:
    colour: str
    name: str
    value: Callable[[Moment], float]
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class _Panel:
    unit: str
    lines: tuple[_Line, ...]


_PANELS: Final = (
    _Panel("CPUs", (_Line("#b8860b", "load", lambda moment: moment.load),)),
    _Panel(
        "pods",
        (
            _Line("#7a9cc6", "replicas wanted", lambda moment: moment.wanted, dashed=True),
            _Line("#1f5fa8", "pods running", lambda moment: moment.running),
        ),
    ),
    _Panel("nodes", (_Line("#2e7d32", "nodes", lambda moment: moment.nodes),)),
    _Panel("$/h", (_Line("#b03060", "dollars an hour", lambda moment: moment.usd_per_hour),)),
)
_HEIGHT: Final = _TOP + len(_PANELS) * (_PANEL + _GAP) + 24


def chart(title: str, course: Sequence[Moment]) -> str:
    """The picture of a course of at least one moment, as an XML document; time runs to the right."""
    return svg.document(title, _WIDTH, _HEIGHT, _STYLE, _body(changes(course)))


def _body(course: Sequence[Moment]) -> Iterable[str]:
    first, last = course[0].seconds, max(course[-1].seconds, course[0].seconds + 1)

    def x(seconds: float) -> float:
        return _LEFT + (seconds - first) / (last - first) * _ROOM

    for number, panel in enumerate(_PANELS):
        yield from _panel(panel, _TOP + number * (_PANEL + _GAP), course, x)
    bottom = _TOP + len(_PANELS) * (_PANEL + _GAP) - _GAP
    minutes = range(int((last - first) // 60) + 1)
    every = -(-len(minutes) // 16)
    for minute in minutes[::every]:
        place = f"{x(first + 60 * minute):.1f}"
        yield f'<line class="axis" x1="{place}" y1="{_TOP}" x2="{place}" y2="{bottom}" stroke-dasharray="1 4"/>'
        yield f'<text class="s" x="{place}" y="{bottom + 16}" text-anchor="middle">{minute} min</text>'


def _panel(panel: _Panel, top: int, course: Sequence[Moment], x: Callable[[float], float]) -> Iterable[str]:
    most = max((line.value(moment) for line in panel.lines for moment in course), default=0) or 1.0
    bottom = top + _PANEL

    def y(value: float) -> float:
        return bottom - value / most * (_PANEL - 18)

    yield f'<line class="axis" x1="{_LEFT}" y1="{bottom}" x2="{_WIDTH - _RIGHT}" y2="{bottom}"/>'
    for value in (0.0, most):
        yield f'<text class="s" x="{_LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.3g} {panel.unit}</text>'
    for number, line in enumerate(panel.lines):
        points = []
        for earlier, moment in zip((None, *course), course, strict=False):
            if earlier is not None:  # a step: what was there stays until it changes
                points.append(f"{x(moment.seconds):.1f},{y(line.value(earlier)):.1f}")
            points.append(f"{x(moment.seconds):.1f},{y(line.value(moment)):.1f}")
        dashes = ' stroke-dasharray="5 3"' if line.dashed else ""
        yield f'<polyline class="line" stroke="{line.colour}"{dashes} points="{" ".join(points)}"/>'
        yield f'<text x="{_LEFT + 8 + number * 150}" y="{top + 8}" style="fill:{line.colour}">{svg.text(line.name)}</text>'
