"""What holds of a history whose names are replaced: none of them is in it, and what belonged together still does."""

from collections.abc import Iterator
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect

from provisioner.apis import names
from provisioner.disruption.controller import CONSOLIDATIONS, METHODS, REBUILDING
from provisioner.history.anonymous import Anonymizer
from provisioner.history.entries import (
    AnyHistoryEntry,
    BatchPlanned,
    CommandSeen,
    CommandTurn,
    EventTold,
    HistoryEntry,
    HistoryPodClass,
    PlannedNodes,
)
from provisioner.history.pod_classes import class_of, shape_of_class
from provisioner.history.segments import read_segment
from provisioner.history.tracker import ObjectTracker
from provisioner.packing.planner import PlanOutcome
from provisioner.packing.process import PackingRefusal
from provisioner.ui.document import alone
from provisioner.ui.page import MOST_BYTES, encoded
from provisioner.ui.recorded import recorded_page
from tests.support.cluster import claim, node, pod, pool
from tests.support.histories import RecordedCluster, entries_of
from tests.support.problems import apart, app, shape, spread

PLANTED = [f"acme{number:04d}" for number in range(1000)]


def planted(number: int) -> str:
    return PLANTED[number % 1000]


def hostile(cluster: RecordedCluster) -> list[HistoryEntry]:
    """Objects with a thousand names in every place, and entries that nobody's object makes."""
    for at in range(0, 900, 9):
        name = [planted(at + more) for more in range(9)]
        labels = {name[0]: name[1], f"{name[2]}.example.com/team": name[3], "app": name[4], names.ZONE_LABEL: name[8]}
        one = shape(
            labels=labels,
            namespace=name[5],
            selector={f"{name[6]}/disk": name[7], names.ARCH_LABEL: "amd64"},
            affinity=apart(names.HOSTNAME_LABEL, app(name[4])),
            topology_spread_constraints=(spread(f"{name[2]}/rack", app(name[4], **{name[0]: name[1]})),),
            more={f"{name[3]}/widget": "1"},
            priority_class_name=name[8],
            scheduler_name=name[7],
        )
        cluster.put_pod(pod(f"{name[0]}-web-{at}", uid=name[1], shape=one, owner=name[2], kind=name[3], node=name[8]))
        cluster.put_node(
            node(
                name[8],
                labels=labels | {names.NODEPOOL_LABEL: name[0]},
                taints=({"key": name[1], "value": name[2], "effect": "NoSchedule"},),
            )
        )
        cluster.put_claim(
            claim(name[8], pool=name[0], labels={names.INSTANCE_TYPE_LABEL: name[1], names.ZONE_LABEL: name[2]})
        )
        cluster.keeper.said(name[3], name[4], name[5], f"Pod {name[6]}/{name[7]} with image {name[8]}:latest: failed")
    made = pool(planted(900), requirements=({"key": planted(901), "operator": "In", "values": [planted(902)]},))
    spec = msgspec.to_builtins(made.spec) | {"limits": {planted(907): "3"}}
    metadata = {"labels": {planted(903): planted(904)}, "annotations": {planted(905): planted(906)}}
    spec["template"] = {**spec["template"], "metadata": metadata}
    cluster.pools[made.name] = msgspec.convert(msgspec.to_builtins(made) | {"spec": spec}, type(made))
    return [
        BatchPlanned(
            planted(910),
            1,
            (PlannedNodes(planted(911), planted(912), planted(913), planted(914), 1.0, 1, 1),),
            0,
            ((f"NodePool {planted(915)} is full", 1),),
            1.0,
            1.0,
            None,
            planted(916),
            3,
        ),
        CommandSeen(planted(920), CommandTurn.BEGUN, planted(921), planted(922), (planted(923),)),
        *(EventTold(planted(at), planted(at + 1), planted(at + 2), planted(at + 3)) for at in range(930, 997, 4)),
    ]


def recorded(key: bytes) -> list[bytes]:
    cluster = RecordedCluster(changed=Anonymizer(key))
    more = hostile(cluster)
    cluster.keeper.flush()

    def tell(tracker: ObjectTracker, _: float) -> None:
        for one in more:
            tracker.entry(one)

    cluster.keeper.tell(tell)
    cluster.clock.advance(1)
    cluster.keeper.flush()
    return cluster.segments()


@settings(max_examples=5)
@given(st.binary(min_size=16, max_size=64))
def test_no_planted_name_is_in_an_anonymous_segment(key: bytes) -> None:
    segments = recorded(key)
    text = "\n".join(repr(one) for _, one in entries_of(segments))
    assert [name for name in PLANTED if name in text] == []
    assert [name for name in PLANTED if any(name.encode() in data for data in segments)] == []
    assert all(read_segment(data).head.anonymous for data in segments)
    export = alone(encoded(recorded_page([read_segment(data) for data in segments]), MOST_BYTES)).decode()
    assert [name for name in PLANTED if name in export] == []
    plain = RecordedCluster()
    more = hostile(plain)
    plain.keeper.flush()
    told = "\n".join(repr(one) for one in [*(one for _, one in entries_of(plain.segments())), *more])
    assert sum(name in told for name in PLANTED) > 700, "they stand in a history that is not anonymous"


def filled(kind: inspect.Type, names_left: Iterator[str]) -> Any:
    """A value of a type with another name in each text that it holds."""
    match kind:
        case inspect.StructType(cls=cls, fields=fields):
            return cls(**{one.name: filled(one.type, names_left) for one in fields})
        case inspect.VarTupleType(item_type=item):
            return (filled(item, names_left), filled(item, names_left))
        case inspect.TupleType(item_types=items):
            return tuple(filled(one, names_left) for one in items)
        case inspect.DictType(key_type=key, value_type=value):
            return {filled(key, names_left): filled(value, names_left) for _ in range(2)}
        case inspect.UnionType(types=types):
            return filled(next(one for one in types if not isinstance(one, inspect.NoneType)), names_left)
        case inspect.EnumType(cls=cls):
            return next(iter(cls))
        case inspect.AnyType():
            return [{next(names_left): [next(names_left)]}, next(names_left)]
        case inspect.StrType():
            return next(names_left)
        case inspect.BoolType():
            return True
        case inspect.IntType() | inspect.FloatType():
            return 1
        case _:
            raise AssertionError(f"nobody knows how to fill {kind}")


EVERY = {kind.__name__: kind for kind in get_args(AnyHistoryEntry)}


@pytest.mark.parametrize("kind", EVERY.values(), ids=EVERY)
def test_no_text_of_any_entry_stays(kind: type[HistoryEntry]) -> None:
    names_left = iter(PLANTED)
    entry = filled(inspect.type_info(kind), names_left)
    used = PLANTED[: PLANTED.index(next(names_left))]
    assert [name for name in used if name not in repr(entry)] == []
    hidden = repr(Anonymizer(b"key")([entry]))
    assert [name for name in used if name in hidden] == []


@given(st.text(max_size=40), st.text(max_size=40), st.binary(max_size=8))
def test_a_name_becomes_the_same_everywhere_and_another_one_another(one: str, other: str, key: bytes) -> None:
    hidden = Anonymizer(key)
    assert (hidden.name(one) == hidden.name(other)) is (one == other)
    assert Anonymizer(key).name(one) == hidden.name(one)
    assert hidden.name(hidden.name(one)) != one or hidden.name(one) == one


def test_an_anonymous_class_still_selects_its_own_pods() -> None:
    one = pod("a", shape=shape(labels={"app": "web"}, affinity=apart(names.HOSTNAME_LABEL, app("web"))))
    hidden = Anonymizer(b"key")
    made = msgspec.convert(hidden._replaced(msgspec.to_builtins(class_of(one))), HistoryPodClass)
    again = shape_of_class(made)
    assert again.requests == one.shape.requests
    assert again.affinity is not None
    assert again.affinity.pod_anti_affinity is not None
    (term,) = again.affinity.pod_anti_affinity.required
    assert term.topology_key == names.HOSTNAME_LABEL
    assert term.label_selector is not None
    assert term.label_selector.match_labels == again.labels == {"app": hidden.name("web")}


def test_what_everybody_has_stays() -> None:
    hidden = Anonymizer(b"key")
    public = [
        *(
            "m5.large",
            "u-6tb1.metal",
            "m7i-flex.2xlarge",
            "c-4x-amd64-linux",
            "us-east-1",
            "eu-central-2b",
            "us-gov-west-1a",
        ),
        *(
            "test-zone-a",
            "spot",
            "on-demand",
            "amd64",
            "linux",
            "In",
            "NoSchedule",
            "ReplicaSet",
            "250m",
            "1Gi",
            "100%",
        ),
        *(names.ZONE_LABEL, names.INSTANCE_TYPE_LABEL, names.NODEPOOL_LABEL, "karpenter.k8s.aws/instance-cpu"),
        *(one.name for one in (*METHODS, *CONSOLIDATIONS, REBUILDING)),
        *map(str, (*PlanOutcome, *PackingRefusal)),
        *names.BUDGET_REASONS,
    ]
    assert [name for name in public if hidden.name(name) != name] == []
