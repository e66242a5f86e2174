"""A planned fleet as an SVG: every node to scale, pods by colour, what nobody requests visible. Pure."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import quoteattr

from provisioner.apis.pods import Pod
from provisioner.cli.plan.fleet_summary import zone_of
from provisioner.scheduling.result import PlannedClaim
from provisioner.values import svg
from provisioner.values.resources import CPU, MEMORY, Resources

MAX_ROWS: Final = 400
"""Different nodes that are drawn; equal ones share a row."""
_MAX_LEGEND: Final = 24
_WIDTH, _LEFT, _BAR, _ROW, _TOP = 1200, 330, 12, 34, 92
_ROOM: Final = _WIDTH - _LEFT - 20
_DAEMONS, _SYSTEM, _OTHER = "#8a8f98", "#4a4f57", "#c9b8d8"
_STYLE: Final = ".n{fill:none;stroke:#222;stroke-width:1}"


@dataclass(frozen=True, slots=True)
class _Row:
    claim: PlannedClaim
    pods: tuple[tuple[str, int, Resources], ...]  # workload, how many, their requests together
    count: int


def picture(title: str, claims: Sequence[PlannedClaim], workload_of: Callable[[Pod], str]) -> str:
    """The picture of new nodes, as an XML document.

    Each row is one kind of node, `2 x` how many there are of it. Of its two bars the upper is cpu and the lower memory, as long as the
    node is large beside the largest: grey is what the system and DaemonSets take, colours are pods, hatched is what nobody requests.

    Args:
        title: one line above it.
        claims: the nodes.
        workload_of: whose pod it is; pods of one workload have one colour.
    """
    used: defaultdict[str, int] = defaultdict(int)
    alike: Counter[tuple[object, ...]] = Counter()
    first: dict[tuple[object, ...], _Row] = {}
    for claim in claims:
        of: defaultdict[str, list[Resources]] = defaultdict(list)
        for pod in claim.pods:
            of[workload_of(pod)].append(pod.shape.requests)
        pods = tuple((name, len(some), Resources.total(some)) for name, some in sorted(of.items()))
        for name, _, asked in pods:
            used[name] += asked.get(CPU, 0)
        key = (claim.pool, claim.planned_type, zone_of(claim), claim.planned_capacity_type, claim.usd_per_hour, pods)
        alike[key] += 1
        first.setdefault(key, _Row(claim, pods, 0))
    rows = [_Row(first[key].claim, first[key].pods, count) for key, count in alike.items()]
    rows.sort(key=lambda row: (-row.count * row.claim.usd_per_hour, row.claim.planned_type, str(row.pods)))
    drawn, more = rows[:MAX_ROWS], rows[MAX_ROWS:]
    names = sorted(used, key=lambda name: (-used[name], name))
    colours = {name: _colour(number) for number, name in enumerate(names)}
    legend = (min(len(names), _MAX_LEGEND) + 4) // 3 + 1
    height = _TOP + len(drawn) * _ROW + (20 if more else 0) + legend * 18 + 24
    body = _body(drawn, sum(row.count for row in more), names, colours)
    return svg.document(title, _WIDTH, height, _STYLE, body)


def _body(rows: Sequence[_Row], more: int, names: Sequence[str], colours: dict[str, str]) -> Iterable[str]:
    shown = names[:_MAX_LEGEND]
    yield (
        '<defs><pattern id="free" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        '<rect width="6" height="6" fill="#fff"/><line x1="0" y1="0" x2="0" y2="6" stroke="#d33" stroke-width="1.5"/></pattern></defs>'
    )
    yield '<text class="s" x="16" y="50">Upper bar: cpu, lower bar: memory, to scale. Hatched: not requested.</text>'
    most = {name: max((row.claim.capacity.get(name, 0) for row in rows), default=0) or 1 for name in (CPU, MEMORY)}
    for number, row in enumerate(rows):
        yield from _node(row, _TOP - 20 + number * _ROW, most, colours)
    y = _TOP + len(rows) * _ROW
    if more:
        yield f'<text class="s" x="16" y="{y}">and {more} more nodes, which are not shown</text>'
        y += 20
    entries = [(colours[name], name) for name in shown]
    if len(names) > len(shown):
        entries.append((_OTHER, f"and {len(names) - len(shown)} more workloads"))
    entries += [(_DAEMONS, "DaemonSets"), (_SYSTEM, "reserved for the system")]
    for number, (colour, name) in enumerate(entries):
        x, line = 16 + number % 3 * 390, y + number // 3 * 18
        yield f'<rect x="{x}" y="{line}" width="12" height="12" fill="{colour}"/>'
        yield f'<text class="s" x="{x + 18}" y="{line + 10}">{svg.text(name)}</text>'


def _node(row: _Row, y: int, most: dict[str, int], colours: dict[str, str]) -> Iterable[str]:
    claim = row.claim
    label = f"{row.count} x {claim.planned_type}" if row.count > 1 else claim.planned_type
    yield f'<text x="16" y="{y + 11}">{svg.text(label)}</text>'
    where = f"{claim.pool} · {zone_of(claim)} · {claim.planned_capacity_type} · {claim.usd_per_hour:.4f}/h"
    yield f'<text class="s" x="16" y="{y + 25}">{svg.text(where)}</text>'
    pods = Resources.total(asked for _, _, asked in row.pods)
    for line, resource in enumerate((CPU, MEMORY)):
        top = y + line * (_BAR + 1)
        whole = claim.capacity.get(resource, 0)
        scale = _ROOM / most[resource]
        parts = [("reserved for the system", _SYSTEM, whole - claim.allocatable.get(resource, 0))]
        parts.append(("DaemonSets", _DAEMONS, claim.requests.get(resource, 0) - pods.get(resource, 0)))
        parts += [(f"{count} x {name}", colours[name], asked.get(resource, 0)) for name, count, asked in row.pods]
        yield f'<rect x="{_LEFT}" y="{top}" width="{whole * scale:.1f}" height="{_BAR}" fill="url(#free)"/>'
        x = float(_LEFT)
        for name, colour, amount in parts:
            width = max(0, amount) * scale
            if width >= 0.05:
                tip = f"{name}: {Resources.of({resource: amount}).to_wire().get(resource, '0')} {resource}"
                yield (
                    f'<rect x="{x:.1f}" y="{top}" width="{width:.1f}" height="{_BAR}" fill={quoteattr(colour)}>'
                    f"<title>{svg.text(tip, 200)}</title></rect>"
                )
            x += width
        yield f'<rect class="n" x="{_LEFT}" y="{top}" width="{whole * scale:.1f}" height="{_BAR}"/>'


def _colour(number: int) -> str:
    """Neighbours far apart on the wheel; the same for the same place."""
    return f"hsl({number * 137 % 360},{60 - number // 8 % 3 * 12}%,{62 + number // 24 % 2 * 12}%)"
