"""Small problems that use everything: hypothesis strategies over ready-made parts.

Parts are drawn once from a fixed seed; drawing whole parts is ten times faster than drawing each of their fields, and two
draws often meet.
"""

import random
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.apis.core import (
    Affinity,
    ContainerPort,
    NodeAffinity,
    PodAffinity,
    PodAffinityTerm,
    PreferredSchedulingTerm,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from provisioner.apis.meta import LabelSelector, LabelSelectorRequirement
from provisioner.apis.pods import Pod, PodShape
from provisioner.cloudprovider.types import InstanceType
from provisioner.scheduling.problem import Bin, SchedulingPool
from provisioner.values.taints import Taint, Toleration
from tests.support.problems import (
    DRIVER,
    WELL_KNOWN,
    app,
    instance_type,
    meant,
    node,
    pod,
    pool,
    shape,
    spread,
    storage,
    storage_class,
    term,
    uses,
    volume,
    volume_claim,
)
from tests.support.question import Problem

ZONE, HOST, KIND = names.ZONE_LABEL, names.HOSTNAME_LABEL, names.CAPACITY_TYPE_LABEL
ZONES, APPS, REVISIONS, TEAMS = ("a", "b", "c"), ("x", "y", "z"), ("1", "2"), ("red", "blue")
OWN = "own"
DEDICATED = Taint(key="dedicated", effect="NoSchedule")
RATHER_NOT = Taint(key="rather-not", effect="PreferNoSchedule")
TOLERATES = Toleration(key="dedicated", operator="Exists")
KEYS = (ZONE, ZONE, HOST, HOST, KIND, "team")
STORAGE = storage(
    storage_class("ab", "a", "b"),
    storage_class("now", mode="Immediate"),
    volume("va", "a"),
    volume("vb", "b"),
    volume("vbc", "b", "c", access_modes=("ReadWriteMany",)),
    volume("one", "c"),
    volume_claim("a", volume="va"),
    volume_claim("b", volume="vb"),
    volume_claim("shared", volume="vbc", modes=["ReadWriteMany"]),
    volume_claim("alone", volume="one", modes=["ReadWriteOncePod"]),
    volume_claim("anywhere"),
    volume_claim("anywhere-2"),
    volume_claim("in-ab", "ab"),
    volume_claim("immediate", "now"),
    attach={"tiny": {DRIVER: 1}, "small": {DRIVER: 2}},
)
CLAIMS = ("a", "b", "shared", "alone", "anywhere", "anywhere-2", "in-ab", "immediate", "missing")
NAMESPACES = {"default": {"team": "red"}, "other": {"team": "blue"}}


@dataclass(frozen=True)
class Draw:
    """What parts are made from.

    Attributes:
        chance: decides.
        own: every pod selects, and every pool and node has, the label `own`.
        gentle: without what only some nodes can tell (priorities, claims that cannot be used).
    """

    chance: random.Random
    own: bool = False
    gentle: bool = False


def _selector(draw: Draw, own: str) -> LabelSelector | None:
    chance = draw.chance
    drawn = chance.random()
    if drawn < 0.6:
        return app(own)
    if drawn < 0.85:
        return app(chance.choice(APPS))
    if drawn < 0.95:
        one = LabelSelectorRequirement(key="app", operator="NotIn", values=(chance.choice(APPS),))
        return LabelSelector(match_expressions=(one,))
    return chance.choice((None, LabelSelector()))


def _spread(draw: Draw, own: str) -> TopologySpreadConstraint:
    chance = draw.chance
    return spread(
        chance.choice(KEYS),
        _selector(draw, own),
        chance.choice((1, 1, 1, 2)),
        when_unsatisfiable="ScheduleAnyway" if chance.random() < 0.15 else "DoNotSchedule",
        min_domains=chance.choice((None, None, None, 2, 3)),
        node_affinity_policy="" if draw.own else chance.choice(("", "", "", "Honor", "Ignore")),
        node_taints_policy=chance.choice(("", "", "Honor", "Ignore")),
        match_label_keys=("rev",) if chance.random() < 0.15 else (),
    )


def _between(draw: Draw, own: str) -> Affinity:
    chance = draw.chance
    near: list[PodAffinityTerm] = []
    apart: list[PodAffinityTerm] = []
    for _ in range(chance.choice((1, 1, 2))):
        more: dict[str, Any] = {}
        if chance.random() < 0.15:
            more = chance.choice(
                (
                    {"namespaces": ("other",)},
                    {"namespace_selector": LabelSelector()},
                    {"namespace_selector": LabelSelector(match_labels={"team": "blue"})},
                    {"match_label_keys": ("rev",)},
                    {"mismatch_label_keys": ("rev",)},
                )
            )
        one = meant(chance.choice(KEYS), _selector(draw, own), **more)
        (near if chance.random() < 0.45 else apart).append(one)

    def of(terms: list[PodAffinityTerm]) -> PodAffinity | None:
        return PodAffinity(required=tuple(terms)) if terms else None

    return Affinity(pod_affinity=of(near), pod_anti_affinity=of(apart))


def _wishes(draw: Draw, own: str) -> Affinity:
    chance = draw.chance
    wish = PreferredSchedulingTerm(weight=chance.randint(1, 9), preference=term((ZONE, "In", [chance.choice(ZONES)])))
    one = WeightedPodAffinityTerm(weight=chance.randint(1, 9), pod_affinity_term=meant(chance.choice(KEYS), app(own)))
    return chance.choice(
        (
            Affinity(node_affinity=NodeAffinity(preferred=(wish,))),
            Affinity(pod_affinity=PodAffinity(preferred=(one,))),
            Affinity(pod_anti_affinity=PodAffinity(preferred=(one,))),
        )
    )


def _shape(draw: Draw) -> PodShape:
    chance = draw.chance
    own = chance.choice(APPS)
    fields: dict[str, Any] = {}
    selector = {OWN: "yes"} if draw.own else {}
    for _ in range(chance.choice((0, 1, 1, 1, 2, 2, 3))):
        match chance.choice(
            ("zone", "terms", "spread", "spread", "between", "between", "wishes", "port", "volume", "taint")
        ):
            case "zone":
                selector[ZONE] = chance.choice(ZONES)
            case "terms" if "affinity" not in fields:
                key, values = chance.choice(((ZONE, ZONES), (KIND, ("spot", "on-demand")), ("team", TEAMS)))
                fields["terms"] = [
                    term((key, chance.choice(("In", "In", "NotIn")), [chance.choice(values)]))
                    for _ in range(chance.choice((1, 1, 2)))
                ]
            case "spread":
                count = chance.choice((1, 1, 1, 2))
                fields["topology_spread_constraints"] = tuple(_spread(draw, own) for _ in range(count))
            case "between" if "terms" not in fields:
                fields["affinity"] = _between(draw, own)
            case "wishes" if "terms" not in fields and "affinity" not in fields:
                fields["affinity"] = _wishes(draw, own)
            case "volume":
                claims = CLAIMS[:-4] if draw.gentle else CLAIMS
                fields["volumes"] = uses(*chance.sample(claims, chance.choice((1, 1, 2))))
            case "taint":
                fields["tolerations"] = [TOLERATES]
            case _:
                pass
    made = shape(
        chance.choice(("0", "100m", "500m", "1", "1", "1500m", "2")),
        chance.choice(("0", "128Mi", "1Gi")),
        labels={"app": own, "rev": chance.choice(REVISIONS)},
        namespace="other" if chance.random() < 0.1 else "default",
        priority=0 if draw.gentle else chance.choice((0, 0, 0, 10)),
        selector=selector,
        **fields,
    )
    if chance.random() < 0.08:
        return _with_port(made, chance)
    return made


def _with_port(made: PodShape, chance: random.Random) -> PodShape:
    port = ContainerPort(
        host_port=80, protocol=chance.choice(("TCP", "TCP", "UDP")), host_ip=chance.choice(("", "10.0.0.1"))
    )
    fields = {name: getattr(made, name) for name in made.__struct_fields__}
    return PodShape(**{**fields, "key": f"{made.key}-{port.protocol}-{port.host_ip}", "host_ports": (port,)})


def _type(draw: Draw, name: str) -> InstanceType:
    chance = draw.chance
    cpu, memory, price = {"tiny": ("1", "2Gi", 0.6), "small": ("2", "4Gi", 1.0), "large": ("8", "16Gi", 4.0)}[name]
    return instance_type(
        name,
        cpu,
        memory,
        price,
        zones=chance.choice((ZONES, ZONES, ("a", "b"), ("b", "c"), ("c",))),
        capacity_types=chance.choice((("on-demand",), ("on-demand", "spot"))),
        unavailable=[(chance.choice(ZONES), "spot")] if chance.random() < 0.3 else (),
        max_pods=chance.choice((2, 110)),
    )


def _pool(draw: Draw, name: str) -> SchedulingPool:
    chance = draw.chance
    types = tuple(_type(draw, one) for one in chance.sample(("tiny", "small", "large"), chance.choice((1, 1, 2))))
    wanted: tuple[str, str, tuple[str, ...]] | None = chance.choice(
        (None, None, None, (ZONE, "In", ("a", "b")), ("team", "In", ("red", "blue")), (KIND, "In", ("on-demand",)))
    )
    limits = None if draw.gentle else chance.choice((None, None, None, {"nodes": "2"}, {"cpu": "9"}))
    return pool(
        name,
        *([wanted] if wanted else []),
        types=types,
        labels={**({"team": "red"} if wanted is None else {}), **({OWN: "yes"} if draw.own else {})},
        weight=chance.choice((0, 0, 10)),
        taints=chance.choice(((), (), (), (DEDICATED,), (RATHER_NOT,))),
        limits=limits,
        min_values={names.INSTANCE_TYPE_LABEL: 2} if not draw.gentle and chance.random() < 0.1 else None,
    )


def _bin(draw: Draw, name: str, shapes: list[PodShape]) -> Bin:
    chance = draw.chance
    labels = {ZONE: chance.choice(ZONES), KIND: chance.choice(("spot", "on-demand")), "team": chance.choice(TEAMS)}
    for gone in chance.sample(sorted(labels), chance.choice((0, 0, 0, 1))):
        del labels[gone]
    running = tuple(
        replace_running(pod(f"{name}-old-{number}", chance.choice(shapes)), name)
        for number in range(chance.choice((0, 0, 1, 2)))
    )
    return node(
        name,
        chance.choice(("0", "1", "2", "4")),
        labels={**labels, **({OWN: "yes"} if draw.own else {})},
        taints=chance.choice(((), (), (), (DEDICATED,), (RATHER_NOT,))),
        max_pods=chance.choice((2, 110)),
        running=running,
        attach=chance.choice(({}, {DRIVER: 1}, {DRIVER: 2})),
        leaving=chance.random() < 0.1,
    )


def replace_running(one: Pod, where: str) -> Pod:
    """The pod, bound."""
    fields = {name: getattr(one, name) for name in one.__struct_fields__}
    return Pod(**{**fields, "node_name": where, "phase": "Running", "unschedulable": False, "scheduled": True})


class Stock:
    """Ready-made parts, and problems made of them."""

    def __init__(self, seed: int, *, own: bool = False, gentle: bool = False) -> None:
        draw = Draw(random.Random(seed), own=own, gentle=gentle)
        self.shapes = [_shape(draw) for _ in range(400)]
        self.pools = [[_pool(draw, f"pool-{slot}") for _ in range(40)] for slot in range(2)]
        self.bins = [[_bin(draw, f"node-{slot}", self.shapes) for _ in range(80)] for slot in range(3)]
        daemon = shape("100m", "0", selector=None)
        self.daemons = [daemon, shape("200m", "0", tolerations=[Toleration(operator="Exists")])]

    def workloads(self, most_kinds: int, copies: tuple[int, ...]) -> st.SearchStrategy[tuple[Pod, ...]]:
        """A few kinds of pods, each so many times."""
        kinds = st.lists(
            st.tuples(st.sampled_from(self.shapes), st.sampled_from(copies), st.integers(0, 2)),
            min_size=1,
            max_size=most_kinds,
        )
        return kinds.map(
            lambda drawn: tuple(
                pod(f"pod-{number}-{copy}", of, age=age)
                for number, (of, count, age) in enumerate(drawn)
                for copy in range(count)
            )
        )

    def problems(
        self, *, most_kinds: int = 4, copies: tuple[int, ...] = (1, 1, 2, 4), most_bins: int = 3
    ) -> st.SearchStrategy[Problem]:
        """Problems of these parts."""
        bins = st.tuples(*(st.sampled_from([None, *slot]) for slot in self.bins[:most_bins]))
        pools = st.tuples(
            *(st.sampled_from([None, *slot]) if n else st.sampled_from(slot) for n, slot in enumerate(self.pools))
        )
        return st.builds(
            _problem,
            self.workloads(most_kinds, copies),
            pools,
            bins,
            st.lists(st.sampled_from(self.daemons), max_size=1),
        )

    def drawn(self, chance: random.Random) -> Problem:
        """One problem of these parts, without hypothesis."""
        pods = tuple(
            pod(f"pod-{number}-{copy}", chance.choice(self.shapes))
            for number in range(chance.randint(1, 5))
            for copy in range(chance.choice((1, 2, 5)))
        )
        pools = tuple(chance.choice(slot) for slot in self.pools)
        bins = tuple(chance.choice([None, *slot]) for slot in self.bins)
        return _problem(pods, pools, bins, [])


def _problem(
    pods: tuple[Pod, ...],
    pools: tuple[SchedulingPool | None, ...],
    bins: tuple[Bin | None, ...],
    daemons: list[PodShape],
) -> Problem:
    return Problem(
        pods=pods,
        pools=tuple(one for one in pools if one is not None),
        bins=tuple(one for one in bins if one is not None),
        daemons=tuple(daemons),
        well_known=WELL_KNOWN,
        namespaces=NAMESPACES,
        storage=STORAGE,
    )


def foreign_node(own: str = "no") -> Bin:
    """A node that no pod of an `own` stock selects, in a zone of its own."""
    return node("foreign", "64", labels={ZONE: "mars", KIND: "spot", "team": "green", OWN: own})


def foreign_pool() -> SchedulingPool:
    """A pool that no pod of an `own` stock selects, in a zone of its own."""
    return pool(
        "zz-foreign",
        types=(instance_type("foreign", "64", "256Gi", 0.01, zones=("mars",)),),
        labels={OWN: "no"},
        weight=100,
    )


def without_offerings(one: SchedulingPool) -> SchedulingPool:
    """The pool with one more type, large and cheap and in a zone of its own, that cannot be had."""
    gone = instance_type(
        "gone", "64", "256Gi", 0.01, zones=("mars",), unavailable=[("mars", "spot"), ("mars", "on-demand")]
    )
    return replace(one, instance_types=(*one.instance_types, gone))
