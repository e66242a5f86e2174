"""Whatever a tenant may post costs linear work and bounded memory: each list and map of each kind is filled in turn, and work is counted, not timed."""

import contextlib
import gc
import json
import os
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provisioner.apis import core, pods
from provisioner.apis.budget_index import BudgetIndex, PodBudgets
from provisioner.apis.buffer import CapacityBuffer
from provisioner.apis.footprint import AMOUNTS_BYTES, CONSTRAINT_BYTES, OBJECT_BYTES, POD_BYTES, footprint
from provisioner.apis.meta import Condition, LabelSelector, Object, ObjectMeta
from provisioner.apis.pods import Pod, decode_pod
from provisioner.apis.selections import excess
from provisioner.apis.shapes import ResizeStatus
from provisioner.apis.vpa import VerticalPodAutoscaler, recommended, targets_of
from provisioner.kube import resources
from provisioner.scheduling.constraints.demands import ties_of
from provisioner.scheduling.constraints.filters import FilterError
from provisioner.scheduling.constraints.selectors import read_selector
from provisioner.scheduling.topology.census import tally_of
from provisioner.scheduling.topology.ties import kinds
from provisioner.state.daemons import daemon_shape
from provisioner.state.knowledge import KindKnowledge
from provisioner.state.predictions import AutoscalerKeeper, PodPredictions
from provisioner.values.resources import Resources
from tests.support.autoscalers import autoscaler, sized_pod
from tests.support.filled import Path, filled, full, ids, merge, of_bytes, rows
from tests.support.pods import wire_bytes, wire_pod

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
MAXIMAL = 1_500_000
LONG = 100_000
"""Bytes of an object that is far beyond what is kept of any."""
MANY = 5
"""Objects, so that what the decoder remembers of keys is not taken for theirs."""
FEW = 600
"""Elements of which the work is counted, and of twice as many."""
LINEAR = 2.5
IN_MEMORY = 10
"""Of a text of many small objects, at most so many times its bytes."""


class _Status(ResizeStatus, frozen=True, kw_only=True):
    conditions: tuple[Condition, ...] = ()


class _WirePod(Object, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: core.PodSpec = core.PodSpec()
    status: _Status = _Status()


@dataclass(frozen=True)
class Kind:
    """What a program decodes, and does with every object at once.

    Attributes:
        wire: everything that is read of it.
        decode: what is kept of it.
        asks: what is asked of each at once.
    """

    wire: type
    decode: Callable[[bytes], Any]
    asks: Callable[[Any], object]


def asks_of_pod(pod: Pod) -> None:
    shape = pod.shape
    excess(shape.node_selector, shape.affinity, shape.tolerations, shape.spread)
    tally_of([pod], exact=True)
    kinds([pod])
    PodBudgets({"shop": (core.PodDisruptionBudget(),)}).of(pod)
    with contextlib.suppress(FilterError):
        assert ties_of(shape).required is not None


def asks_of_sized_pod(pod: Pod) -> None:
    assert SIZERS.readmitted(pod).uid == pod.uid


PODS = {
    "pod": Kind(_WirePod, decode_pod, asks_of_pod),
    "pod with amounts": Kind(_WirePod, partial(decode_pod, amounts=True), asks_of_sized_pod),
}


def nothing(_: object) -> None:
    """Nobody asks anything of it by itself."""


def asks_of_selecting(one: core.PodSelecting) -> None:
    with contextlib.suppress(FilterError):
        read_selector(one.spec.selector, "")


TEN: dict[str, Any] = {f"c{number}": {"cpu": "1", "memory": "1Gi"} for number in range(10)}
SIZED = sized_pod(**TEN)
SIZERS = PodPredictions({targets_of(SIZED)[0]: autoscaler(app={"cpu": "2"})})


def asks_of_sizer(one: VerticalPodAutoscaler) -> None:
    keeper = AutoscalerKeeper()
    keeper.know(KindKnowledge.READ)
    keeper.changed(None, one)
    keeper.changed(one, one)
    assert SIZED.amounts is not None
    assert recommended(SIZED.amounts.spec, one).containers


OTHERS = {
    "PodDisruptionBudget": Kind(core.PodDisruptionBudget, resources.PDBS.decode, lambda one: BudgetIndex([one])),
    "PersistentVolumeClaim": Kind(core.PersistentVolumeClaim, resources.PVCS.decode, nothing),
    "DaemonSet": Kind(core.DaemonSet, resources.DAEMONSETS.decode, daemon_shape),
    "LimitRange": Kind(core.LimitRange, resources.LIMITRANGES.decode, nothing),
    "Namespace": Kind(core.Namespace, resources.NAMESPACES.decode, nothing),
    "labels of a Namespace": Kind(core.LabelledNamespace, resources.NAMESPACE_LABELS.decode, nothing),
    "CapacityBuffer": Kind(
        CapacityBuffer, resources.CAPACITYBUFFERS.decode, lambda one: Resources.parse(one.spec.limits)
    ),
    "VerticalPodAutoscaler": Kind(VerticalPodAutoscaler, resources.AUTOSCALERS.decode, asks_of_sizer),
    "selector of a ReplicaSet": Kind(core.PodSelecting, resources.REPLICASET_SELECTORS.decode, asks_of_selecting),
    "selector of a Service": Kind(core.PodLabelling, resources.SERVICE_SELECTORS.decode, nothing),
}
OTHER_ROWS = [
    (name, path)
    for name, path in rows({name: one.wire for name, one in OTHERS.items()})
    if not (name == "DaemonSet" and "affinity" in path)  # as in a pod
]
POD_ROWS = [
    (name, path)
    for name, path in rows({name: one.wire for name, one in PODS.items()})
    if name == "pod" or {"containers", "initContainers", "overhead"} & set(path)  # of the others nothing more is kept
]


@pytest.fixture(autouse=True, scope="module")
def _small_heap() -> None:
    """What earlier tests left is not looked through by each collection of this module."""
    gc.collect()
    gc.freeze()


def forgotten() -> None:
    """Nothing is known of earlier objects: what is remembered of texts saves work."""
    pods._by_text.clear()
    gc.collect()


def steps(work: Callable[[], object]) -> int:
    """Lines of Python that are executed, calls included."""
    count = 0

    def tracer(_frame: FrameType, _event: str, _argument: Any) -> Any:
        nonlocal count
        count += 1
        return tracer

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def kept_bytes(decode: Callable[[bytes], object], texts: Sequence[bytes], most: float) -> float:
    """Memory that one of these objects keeps after it was decoded, and whatever is remembered of it.

    Counted again where it is more than `most`: what other threads of the process allocate meanwhile counts too.
    """
    kept = _kept_bytes(decode, texts)
    return kept if kept <= most else min(_kept_bytes(decode, texts) for _ in range(2))


def _kept_bytes(decode: Callable[[bytes], object], texts: Sequence[bytes]) -> float:
    forgotten()
    tracemalloc.start()
    try:
        kept = [decode(texts[0])]
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        kept += [decode(text) for text in texts[1:]]
        gc.collect()
        return (tracemalloc.get_traced_memory()[0] - before) / (len(kept) - 1)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("name", "path"), POD_ROWS, ids=ids(POD_ROWS))
def test_decoding_a_pod_takes_work_in_proportion_to_what_it_says(name: str, path: Path) -> None:
    kind = PODS[name]

    def work(count: int) -> int:
        data = filled(kind.wire, path, count)
        forgotten()
        return steps(lambda: kind.asks(kind.decode(data)))

    work(1)
    once, twice = work(FEW), work(2 * FEW)
    assert twice <= LINEAR * once


@pytest.mark.parametrize(("name", "path"), POD_ROWS, ids=ids(POD_ROWS))
def test_of_the_longest_pod_as_much_is_kept_as_of_any(name: str, path: Path) -> None:
    kind = PODS[name]
    texts = [of_bytes(kind.wire, path, LONG, first * LONG) for first in range(MANY)]
    most = POD_BYTES + AMOUNTS_BYTES * (name != "pod")
    assert kept_bytes(kind.decode, texts, most) <= most


def test_a_pod_that_is_full_of_everything_costs_no_more() -> None:
    data = full(_WirePod, 1)
    count = MAXIMAL // len(data)
    kept = decode_pod(full(_WirePod, count))
    assert kept.shape.unjudged
    assert footprint(kept, MAXIMAL) <= POD_BYTES

    def work(count: int) -> int:
        data = full(_WirePod, count)
        forgotten()
        return steps(partial(decode_pod, data))

    once, twice = work(count), work(2 * count)
    assert twice <= LINEAR * once


def test_two_thousand_sidecars_with_resources_of_their_own_cost_work_in_proportion() -> None:
    """Seen: 3.8 s of CPU for each change of a pod of 240 KB, so that one pod stopped provisioning for all."""

    def work(count: int) -> int:
        sidecars = [
            {"name": f"s{n}", "restartPolicy": "Always", "resources": {"requests": {f"example.com/r{n}": "1"}}}
            for n in range(count)
        ]
        data = wire_bytes(wire_pod(spec__initContainers=sidecars))
        forgotten()
        return steps(partial(decode_pod, data))

    work(1)
    once, twice = work(FEW), work(2 * FEW)
    assert twice <= LINEAR * once


def test_amounts_that_are_not_kept_are_not_read() -> None:
    """Seen: 38,000 resources in the requests and limits of one container took 1.25 s for each change of the pod."""

    def work(count: int) -> int:
        amounts = {f"example.com/r{n}": "1" for n in range(count)}
        data = wire_bytes(
            wire_pod(spec__containers=[{"name": "c", "resources": {"requests": amounts, "limits": amounts}}])
        )
        forgotten()
        return steps(partial(decode_pod, data))

    work(1)
    once, twice = work(FEW), work(2 * FEW)
    assert twice <= 1.1 * once


def read(kind: Kind, data: bytes) -> object:
    """The object, and None where it says more than is kept of any: then it is told as one that cannot be read."""
    try:
        return kind.decode(data)
    except ValueError as error:
        if "more than 64 KiB" not in str(error):
            raise
        return None


@pytest.mark.parametrize(("name", "path"), OTHER_ROWS, ids=ids(OTHER_ROWS))
def test_what_else_a_tenant_writes_costs_work_in_proportion_and_bounded_memory(name: str, path: Path) -> None:
    kind = OTHERS[name]

    def ask(data: bytes) -> None:
        one = read(kind, data)
        if one is not None:
            kind.asks(one)

    def work(count: int) -> int:
        data = filled(kind.wire, path, count)
        forgotten()
        return steps(partial(ask, data))

    work(1)
    once, twice = work(4 * FEW), work(8 * FEW)  # each of them is more than is kept
    assert twice <= LINEAR * once
    texts = [of_bytes(kind.wire, path, 2 * LONG, first * LONG) for first in range(MANY)]
    kept = kept_bytes(partial(read, kind), texts, OBJECT_BYTES)
    assert kept <= OBJECT_BYTES


def test_a_budget_too_long_to_say_whose_it_is_is_that_of_all_pods_of_its_namespace() -> None:
    said = filled(core.PodDisruptionBudget, ("spec", "selector", "matchLabels"), 10_000)
    one = resources.PDBS.decode(said)
    assert one.spec.selector == LabelSelector()
    web = decode_pod(wire_bytes(wire_pod()))
    assert BudgetIndex([one]).of(web) == (one,)


def test_annotations_that_nobody_reads_cost_no_object_its_place() -> None:
    """`kubectl apply` writes the whole manifest into one."""
    said = filled(core.DaemonSet, ("metadata", "annotations"), 10_000)
    assert resources.DAEMONSETS.decode(said).metadata.name == "one"


SPEC_LISTS = [path for name, path in POD_ROWS if name == "pod" and path[0] in ("spec", "metadata")]
CONSTRAINTS = ("affinity", "tolerations", "spread", "resource_claims", "host_ports")


@settings(max_examples=2_000 if THOROUGH else 100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(SPEC_LISTS), st.integers(0, 400)), min_size=1, max_size=4))
def test_whatever_a_pod_says_a_little_of_it_is_kept(said: list[tuple[Path, int]]) -> None:
    whole: dict[str, Any] = {}
    for path, count in said:
        merge(whole, json.loads(filled(_WirePod, path, count)))
    pod = decode_pod(json.dumps(whole).encode())
    shape = pod.shape
    of_constraints = footprint([getattr(shape, name) for name in CONSTRAINTS], MAXIMAL)
    twice = footprint(pod.labels, MAXIMAL) if pod.labels is shape.labels else 0
    own = footprint(pod, MAXIMAL) - twice - of_constraints
    assert own <= POD_BYTES
    assert of_constraints <= IN_MEMORY * CONSTRAINT_BYTES
