"""A pass of consolidation that remembers earlier ones decides as one that knows nothing, and what it proves no question gainsays."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.apis.pods import Pod, PodShape
from provisioner.disruption.methods import consolidation
from provisioner.disruption.methods.moves import Consolidation, Move
from provisioner.disruption.view import Acceptance, DisruptionSettings, DisruptionView, MethodAnswer
from provisioner.scheduling.prepared import Prepared, prepare
from provisioner.values.resources import EMPTY
from tests.support.fleets import ABC, LARGE, MEDIUM, SMALL, TINY, Fleet, budget, pool, running
from tests.support.problems import apart, app, instance_type, near, of_app, spread

ZONE, HOST = names.ZONE_LABEL, names.HOSTNAME_LABEL
KINDS = (TINY, SMALL, MEDIUM, LARGE)
CHEAP = tuple(
    instance_type(one.name, cpu, memory, usd, zones=zones, capacity_types=("on-demand",))
    for one, cpu, memory, usd, zones in (
        (TINY, "1", "2Gi", 0.06, ABC),
        (SMALL, "2", "4Gi", 0.05, ABC),
        (MEDIUM, "4", "8Gi", 0.2, ("a", "b")),
        (LARGE, "8", "16Gi", 0.35, ABC),
    )
)
APPS = ("web", "db", "job", "tick")
STEPS = (
    "a pod ends",
    "a pod ends",
    "a pod comes",
    "a pod comes",
    "a node comes",
    "a node goes",
    "prices change",
    "a budget",
    "a pass",
)
TERMS: dict[str, Callable[[str], dict[str, Any]]] = {
    "nothing": lambda _: {},
    "zones": lambda name: {"topology_spread_constraints": (spread(ZONE, app(name)),)},
    "two skews": lambda name: {
        "topology_spread_constraints": (spread(ZONE, app(name), skew=2), spread(HOST, app(name)))
    },
    "zones of others": lambda _: {"topology_spread_constraints": (spread(ZONE, app("web")),)},
    "at least three zones": lambda name: {"topology_spread_constraints": (spread(ZONE, app(name), min_domains=3),)},
    "wished zones": lambda name: {
        "topology_spread_constraints": (spread(ZONE, app(name), when_unsatisfiable="ScheduleAnyway"),)
    },
    "apart": lambda name: {"affinity": apart(HOST, app(name))},
    "apart in zones": lambda _: {"affinity": apart(ZONE, app("job"))},
    "near": lambda name: {"affinity": near(ZONE, app(name))},
}
LIKELY = ("nothing", "zones", "zones", "zones", *TERMS)


@dataclass
class Story:
    """A fleet and what happens to it; told twice, to one who remembers and to one who does not."""

    fleet: Fleet
    shapes: dict[str, PodShape]
    chance: random.Random
    number: int = 0
    before: Prepared | None = field(default=None, repr=False)

    def room_for(self, shape: PodShape) -> list[int]:
        return [at for at, one in enumerate(self.fleet.nodes) if shape.requests.fits(one.room)]

    def put(self, at: int, pods: Sequence[Pod]) -> None:
        """These pods are on a node from now on."""
        node = self.fleet.nodes[at]
        used = EMPTY
        for one in pods:
            used += one.shape.requests
        listed = tuple(replaced(one, node.name) for one in pods)
        self.fleet.nodes[at] = replace(node, pods=listed, used=used, room=node.allocatable - used)

    def pod(self, name: str) -> Pod:
        self.number += 1
        return running(f"{name}-{self.number}", self.shapes[name])

    def node(self) -> None:
        self.number += 1
        kind, zone = self.chance.choice(KINDS), self.chance.choice(ABC)
        of = self.chance.choice(self.fleet.pools).name
        self.fleet.node(f"n{self.number:03d}", (), kind=kind, zone=zone, of=of)
        for name in self.chance.choices(APPS, k=self.chance.randint(1, 5)):
            if self.shapes[name].requests.fits(self.fleet.nodes[-1].room):
                self.put(len(self.fleet.nodes) - 1, (*self.fleet.nodes[-1].pods, self.pod(name)))

    def step(self, what: str, answer: MethodAnswer) -> None:
        nodes = self.fleet.nodes
        full = [at for at, one in enumerate(nodes) if one.pods]
        if what == "a pod ends" and full:
            at = self.chance.choice(full)
            self.put(at, self.chance.sample(nodes[at].pods, len(nodes[at].pods) - 1))
        elif what == "a pod comes":
            name = self.chance.choice(APPS)
            if places := self.room_for(self.shapes[name]):
                at = self.chance.choice(places)
                self.put(at, (*nodes[at].pods, self.pod(name)))
        elif what == "a node comes":
            self.node()
        elif what == "a node goes" and len(nodes) > 1:
            nodes.pop(self.chance.randrange(len(nodes)))
        elif what == "prices change":
            self.fleet.types = CHEAP if self.fleet.types is KINDS else KINDS
        elif what == "a budget":
            self.fleet.budgets = [budget("pdb", self.chance.choice(APPS), self.chance.choice((0, 1, 5)))]
        elif what == "a pass":
            self.carry_out(answer)

    def carry_out(self, answer: MethodAnswer) -> None:
        for one in answer.proposals:
            for name, pods in one.placements.items():
                at = next(at for at, node in enumerate(self.fleet.nodes) if str(node.key) == name)
                self.put(at, (*self.fleet.nodes[at].pods, *pods))
            self.fleet.nodes = [node for node in self.fleet.nodes if node.key.name not in one.candidates]
            for claim in one.replacements:
                self.number += 1
                kind = next(kind for kind in self.fleet.types if kind.name == claim.planned_type)
                self.fleet.node(f"n{self.number:03d}", claim.pods, kind=kind, zone=claim.planned_zone, of=claim.pool)

    def view(self) -> DisruptionView:
        """As a leader sees it that made the passes before."""
        view = self.fleet.view()
        assert view.prepared is not None
        self.before = prepare(view.prepared.world, self.before)
        return replace(view, prepared=self.before)

    def afresh(self) -> DisruptionView:
        """As a new leader sees it."""
        return replace(self.fleet, nodes=[replace(one) for one in self.fleet.nodes]).view()


def replaced(pod: Pod, node: str) -> Pod:
    return running(pod.name, pod.shape, node_name=node)


@st.composite
def stories(draw: st.DrawFn) -> Story:
    shapes = {
        name: of_app(
            name,
            cpu=draw(st.sampled_from(("250m", "500m", "900m", "1500m"))),
            **TERMS[draw(st.sampled_from(LIKELY))](name),
        )
        for name in APPS
    }
    pools = [
        pool(limits=draw(st.sampled_from(({}, {}, {"nodes": "12"})))),
        *draw(st.sampled_from(((), (pool("heavy", weight=10),)))),
    ]
    fleet = Fleet(pools, types=KINDS, daemons=draw(st.sampled_from(((), (of_app("daemon", cpu="100m"),)))))
    fleet.settings = DisruptionSettings(acceptance=draw(st.sampled_from(Acceptance)))
    story = Story(fleet, shapes, random.Random(draw(st.integers(0, 1 << 32))))
    for _ in range(draw(st.integers(3, 7))):
        story.node()
    return story


@pytest.fixture(autouse=True)
def gainsaid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is proved is asked all the same."""
    proved = Consolidation.never_pays

    def asked(self: Consolidation, some: Any, max_new: int | None = None) -> str:
        why = proved(self, some, max_new)
        if why and max_new is not None:
            assert not isinstance(self.judge(some, max_new=max_new), Move), [one.key for one in some]
        return why

    monkeypatch.setattr(Consolidation, "never_pays", asked)


@settings(max_examples=15, derandomize=True, deadline=None)
@given(stories(), st.lists(st.sampled_from(STEPS), min_size=2, max_size=6))
def test_a_pass_decides_as_one_that_knows_nothing(story: Story, steps: list[str]) -> None:
    for step in ("nothing", *steps):
        story.step(step, consolidation.propose(story.view()) if step == "a pass" else MethodAnswer())
        remembering, afresh = consolidation.propose(story.view()), consolidation.propose(story.afresh())
        assert remembering.proposals == afresh.proposals
        assert remembering.blocked == afresh.blocked
