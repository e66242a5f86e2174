"""Pictures of the live page for README and docs: `python -m tests.pictures` writes eight into docs/guides/pictures.

What they show is made up, but for types and prices of EC2: the same seed makes the same clusters.
"""

import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, NamedTuple

from playwright.sync_api import Page as Screen

from provisioner.ec2.market.static_data import on_demand_prices, published_types
from provisioner.history.digest import HistoryDigest
from provisioner.history.entries import (
    BatchPlanned,
    BoundCause,
    BoundCauses,
    ClaimSeen,
    CommandSeen,
    CommandTurn,
    EventTold,
    FleetBound,
    FleetCost,
    InstanceInterrupted,
    OfferingTurned,
    PlannedNodes,
)
from provisioner.ui.document import alone
from provisioner.ui.page import (
    MOST_BYTES,
    Page,
    PageClass,
    PageCommand,
    PageHistory,
    PageInterruption,
    PageNode,
    PagePool,
    PageShortage,
    PageSums,
    PageWaiting,
    PodRow,
    PodsApart,
    encoded,
)
from provisioner.ui.past import history_of
from provisioner.ui.sight import ALL
from tests.support.browser import Tab, chromium

TARGET: Final = Path(__file__).parents[1] / "docs/guides/pictures"
MOST_PICTURE: Final = 200_000
"""Bytes of one."""
AT: Final = 1_795_262_400
GIB: Final = 2**30
ZONES: Final = ("us-east-1a", "us-east-1b", "us-east-1c")
TYPES: Final = {
    "general": ("m5.xlarge", "c5.2xlarge", "m5.2xlarge", "r5.xlarge"),
    "batch": ("c5.4xlarge", "c5.2xlarge"),
    "gpu": ("g5.2xlarge",),
}
WORKLOADS: Final = (
    ("shop", "cart", 500, 1), ("shop", "checkout", 1000, 2), ("shop", "web", 250, 1), ("search", "index", 1500, 6), ("search", "query", 750, 2),
    ("data", "ingest", 1000, 4), ("data", "stream", 2000, 4), ("ml", "features", 500, 4), ("platform", "gateway", 250, 1), ("platform", "auth", 300, 1),
)  # fmt: skip


class MadeCluster:
    """A cluster of so many nodes."""

    def __init__(self, nodes: int) -> None:
        self._chance = random.Random(nodes)
        self._prices = on_demand_prices()["us-east-1"].prices
        self._sizes = {one["instance_type"]: one for one in published_types()}
        self.classes = [
            PageClass(namespace=space, kind="Deployment", name=name, prefix=f"{name}-6d4b75cb6d-", cpu=cpu, memory=memory * GIB)
            for space, name, cpu, memory in WORKLOADS
        ]  # fmt: skip
        self.classes.append(
            PageClass(namespace="data", kind="Job", name="nightly", prefix="nightly-", cpu=3500, memory=6 * GIB)
        )
        self.classes.append(
            PageClass(namespace="ml", kind="StatefulSet", name="serve", prefix="serve-", cpu=6000, memory=24 * GIB, more="nvidia.com/gpu 1")
        )  # fmt: skip
        self.nodes = [self._node(number, nodes) for number in range(nodes)]

    def _node(self, number: int, of: int) -> PageNode:
        chance = self._chance
        pool = "general" if of == 1 else chance.choices(("general", "batch", "gpu"), (80, 15, 5))[0]
        kind = chance.choice(TYPES[pool])
        spot = pool != "gpu" and chance.random() < 0.7
        size = self._sizes[kind]
        cpu = int(size["karpenter.k8s.aws/instance-cpu"]) * 1000
        memory = int(size["karpenter.k8s.aws/instance-memory"]) * 2**20
        state, planned = "ready", False
        if of > 10 and number < of // 12:
            state = chance.choice(("draining", "disrupted", "starting", "launching", "ready"))
            planned = state in ("starting", "launching")
        room, rows = [cpu - 600, memory - 2 * GIB], dict[int, int]()
        full = chance.uniform(0.72, 0.98)
        for _ in range(200):
            index = {"general": chance.randrange(len(WORKLOADS)), "batch": len(WORKLOADS), "gpu": len(WORKLOADS) + 1}[
                pool
            ]
            one = self.classes[index]
            if room[0] < one.cpu or (rows and room[0] - one.cpu < (1 - full) * cpu) or room[1] < one.memory:
                if pool != "general":
                    break
                continue
            room[0] -= one.cpu
            room[1] -= one.memory
            rows[index] = rows.get(index, 0) + 1
        pods: tuple[PodRow, ...] = tuple(
            (index, count, *[f"{chance.randrange(16**5):05x}" for _ in range(count)]) for index, count in sorted(rows.items())
        )  # fmt: skip
        mark = "spot_interrupted" if state == "draining" and spot else ""
        name = f"ip-10-0-{number >> 8}-{number & 255}.ec2.internal"
        return PageNode(
            name="" if state == "launching" else name,
            claim=f"{pool}-{chance.randrange(36**5) % 99999:05}",
            pool=pool,
            type=kind,
            zone=chance.choice(ZONES),
            capacity_type="spot" if spot else "on-demand",
            usd=round(self._prices[kind] * (0.38 if spot else 1.0), 4),
            created=AT - (chance.randrange(20, 90) if planned else chance.randrange(900, 900000)),
            state=state,
            text={"disrupted": "Underutilized", "launching": "not Registered yet", "starting": "not Initialized yet"}.get(state, mark and "Interrupted"),
            by=("general-k7xq2",) if state == "disrupted" else (),
            interrupted=mark,
            cpu=cpu,
            memory=memory,
            slots=58,
            system=(80, GIB),
            daemons=PodsApart(pods=3, cpu=300, memory=GIB // 2),
            pods=() if planned else pods,
            planned=pods if planned else (),
        )  # fmt: skip

    def page(self) -> Page:
        nodes = tuple(self.nodes)
        usd = round(sum(one.usd or 0 for one in nodes), 4)
        used = [sum(self.classes[int(row[0])].cpu * int(row[1]) for one in nodes for row in one.pods), 0]
        used[1] = sum(self.classes[int(row[0])].memory * int(row[1]) for one in nodes for row in one.pods)
        many = len(nodes) > 1
        return Page(
            at=AT,
            title=f"{len(nodes):,} node{'s' if many else ''}",
            source="the leader",
            sums=PageSums(
                nodes=len(nodes),
                pods=sum(int(row[1]) for one in nodes for row in one.pods) + 3 * len(nodes),
                planned=sum(int(row[1]) for one in nodes for row in one.planned),
                usd=usd,
                cpu=sum(one.cpu - 80 for one in nodes),
                memory=sum(one.memory - GIB for one in nodes),
                used_cpu=used[0] + 300 * len(nodes),
                used_memory=used[1] + GIB // 2 * len(nodes),
            ),
            classes=tuple(self.classes),
            nodes=nodes,
            waiting=(
                PageWaiting(
                    of=len(WORKLOADS) + 1, pods=2, names=("serve-4", "serve-5"), since=AT - 95, state="Unschedulable",
                    text="No node can take pod ml/serve-4: NodePool gpu has reached its limit of nvidia.com/gpu.",
                ),
            )
            if many
            else (),
            pools=tuple(self._pool(name) for name in ("batch", "general", "gpu")),
            commands=(PageCommand(reason="Underutilized", phase="Committed", nodes=("ip-10-0-0-3.ec2.internal",), by=("general-k7xq2",)),) if many else (),
            shortages=(PageShortage(zone="us-east-1b", capacity_type="spot", count=1, of=7, types=("c5.4xlarge",)),) if many else (),
            interruptions=tuple(
                PageInterruption(zone=one.zone, type=one.type, reason=one.interrupted, nodes=1) for one in nodes if one.interrupted
            ),
            history=self.history(usd),
        )  # fmt: skip

    def _pool(self, name: str) -> PagePool:
        mine = [one for one in self.nodes if one.pool == name]
        cores = sum(one.cpu for one in mine) // 1000
        most = max(100, -(-cores * 4 // 3 // 100) * 100)
        limits = (("cpu", f"{cores}", f"{most}", round(cores / most, 3)),)
        return PagePool(
            name=name, nodes=len(mine), usd=round(sum(one.usd or 0 for one in mine), 4), weight=10 if name == "gpu" else 0, limits=limits
        )  # fmt: skip

    def history(self, usd: float) -> PageHistory | None:
        """A day that ends with what is there: prices follow the hours, decisions come and go."""
        chance, digest, size = random.Random(7), HistoryDigest(), len(self.nodes)
        begun = AT - 24 * 3600
        for name, cause in (("a", "Pdb prevents pod evictions (PodDisruptionBudget=shop/cart)"), ("b", 'Pod has "karpenter.sh/do-not-disrupt" annotation (Pod=ml/serve-0)'), ("c", "Node is nominated for a pending pod")):  # fmt: skip
            for number in range(max(1, size // {"a": 12, "b": 55, "c": 30}[name])):
                digest.add(AT - 1500, [EventTold("Node", f"{name}-{number}", "DisruptionBlocked", cause)])
        for minute in range(24 * 60 + 1):
            at = begun + minute * 60
            hour = minute / 60
            load = 0.78 + 0.25 * max(0.0, 1 - abs(hour - 10) / 8) + 0.02 * chance.random()
            here = usd * (load / 0.78 if minute < 24 * 60 else 1.0)
            digest.add(at, [FleetCost(here, int(size * load), 0, size * 9, 0)])
            if minute % 20 == 0:
                digest.add(at, [FleetBound(here * 1.09, here * 0.88, at, size * 9, 0, 2.0, here)])
            if chance.random() < 0.02 and minute > 60:
                digest.add(at, self._decision(chance, at, size))
        digest.add(AT - 700, [BoundCauses(AT - 700, usd, usd * 0.95, usd * 0.88, tuple(
            BoundCause(cause, max(1, int(size * share)), round(usd * fall, 4))
            for cause, share, fall in (("PodDisruptionBudgets", 0.12, 0.021), ("do-not-disrupt", 0.05, 0.012), ("young nodes", 0.08, 0.009))
        ), 9.0)])  # fmt: skip
        return history_of(digest.told(), begun, ALL)

    def _decision(
        self, chance: random.Random, at: int, size: int
    ) -> list[BatchPlanned | CommandSeen | InstanceInterrupted | OfferingTurned | ClaimSeen]:
        kind, zone = chance.choice(TYPES["general"]), chance.choice(ZONES)
        price = round(self._prices[kind] * 0.38, 4)
        pods, nodes = chance.randrange(4, 40), chance.randrange(1, 4)
        match chance.randrange(5):
            case 0 | 1:
                new = (PlannedNodes("general", kind, zone, "spot", price, nodes, pods),)
                usd = price * nodes
                return [BatchPlanned(f"b-{at}", pods, new, 3, (), usd, usd * 1.11, usd * 0.97, "improved", 80)]
            case 2 | 3:
                new = (PlannedNodes("general", kind, zone, "spot", price, 1, pods),)
                name = f"ip-10-0-0-{at // 60 % 250}.ec2.internal"
                command = CommandSeen(f"c-{at}", CommandTurn.DONE, chance.choice(("Underutilized", "Drifted")), "single", (f"g-{at}",), new, price * 1.9, price, pods)  # fmt: skip
                return [ClaimSeen(f"g-{at}", "general", kind, zone, "spot", name, at), command]
            case _ if size > 1:
                return [
                    InstanceInterrupted(f"i-{at}", kind, zone, "spot", "spot_interrupted"),
                    OfferingTurned(kind, zone, "spot", available=chance.random() < 0.5),
                ]
            case _:
                return []


class Picture(NamedTuple):
    """One of them: its name, how many nodes, how wide and high, in which colours, and what is done before."""

    name: str
    nodes: int
    width: int = 1200
    height: int = 800
    scheme: Literal["light", "dark"] = "light"
    before: Callable[[Screen], object] = lambda _: None


def _to_the_past(screen: Screen) -> None:
    screen.evaluate("document.getElementById('cost').scrollIntoView()")


PICTURES: Final = (
    Picture("ui-1.png", 1, height=510),
    Picture("ui-50.png", 50),
    Picture("ui-50-dark.png", 50, scheme="dark"),
    Picture("ui-500.png", 500, height=720),
    Picture("ui-5000.png", 5000, height=640),
    Picture("ui-5000-dark.png", 5000, height=640, scheme="dark"),
    Picture("ui-narrow.png", 50, width=390, height=800),
    Picture("ui-history.png", 500, height=1150, before=_to_the_past),
)


def main() -> int:
    """Write all of them."""
    TARGET.mkdir(exist_ok=True)
    files: dict[int, str] = {}
    with tempfile.TemporaryDirectory() as directory, chromium() as browser:
        for one in PICTURES:
            if one.nodes not in files:
                file = Path(directory) / f"{one.nodes}.html"
                file.write_bytes(alone(encoded(MadeCluster(one.nodes).page(), MOST_BYTES)))
                files[one.nodes] = file.as_uri()
            context = browser.new_context(viewport={"width": one.width, "height": one.height}, color_scheme=one.scheme)
            tab = Tab(context).open(files[one.nodes])
            one.before(tab.page)
            data = tab.page.screenshot(path=TARGET / one.name)
            context.close()
            print(f"{one.name}: {len(data):,} bytes")
            if len(data) > MOST_PICTURE:
                print(f"{one.name} is larger than {MOST_PICTURE:,} bytes", file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
