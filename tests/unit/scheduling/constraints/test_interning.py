"""From decoded objects to pods that share their classes, and what is kept with a class."""

from provisioner.apis.core import Container, PodSpec, ResourceRequirements
from provisioner.apis.meta import ObjectMeta
from provisioner.apis.pods import decode_pod, pod_of
from provisioner.scheduling.constraints.demands import facts_of
from provisioner.values.resources import Resources
from tests.support import mixes
from tests.support.pods import wire_bytes, wire_pod


def spec(cpu: str, **more: str) -> PodSpec:
    requests: dict[str, str | int | float] = {"cpu": cpu, **more}
    return PodSpec(containers=(Container(name="main", resources=ResourceRequirements(requests=requests)),))


def test_equal_objects_share_their_shape_and_its_labels() -> None:
    metas = [ObjectMeta(name=name, namespace="n", uid=name, labels={"app": "a"}) for name in ("p", "q")]
    one, other = (pod_of(meta, spec("1")) for meta in metas)
    assert one.shape is other.shape
    assert one.labels is other.labels is one.shape.labels
    assert (one.name, one.namespace, one.uid) == ("p", "n", "p")
    assert pod_of(metas[0], spec("2")).shape is not one.shape


def test_what_is_made_of_a_shape_is_kept_with_it() -> None:
    shape = pod_of(ObjectMeta(name="p", namespace="n"), spec("1")).shape
    assert facts_of(shape) is facts_of(shape)
    assert facts_of(shape).requests == Resources.of({"cpu": 1000, "pods": 1})


def test_a_quantity_that_cannot_be_read_is_told_however_often() -> None:
    for name in ("p", "q"):
        shape = pod_of(ObjectMeta(name=name, namespace="n"), spec("one")).shape
        assert shape.error.startswith("spec.containers[0].resources.requests[cpu]")


def test_a_made_pod_and_a_decoded_one_are_of_one_class() -> None:
    decoded = decode_pod(wire_bytes(wire_pod(1)))
    again = decode_pod(wire_bytes(wire_pod(2)))
    assert decoded.shape is again.shape


def test_the_mix_has_the_classes_and_sizes_of_the_recipe() -> None:
    pods = [pod_of(meta, own) for meta, own in mixes.diverse(1000)]
    assert len({pod.shape.key for pod in pods}) == 655
    apart = [pod for pod in pods if pod.labels.get("app") == "nginx"]
    spread = [pod for pod in pods if pod.shape.spread]
    assert (len(apart), len(spread)) == (200, 400)
    assert {pod.shape.requests["cpu"] for pod in pods} == {100, 250, 500, 1000, 1500}


def test_resources_in_the_ways_that_the_inner_loop_asks() -> None:
    some = Resources.of({"cpu": 1, "memory": 0})
    assert some.wanted == ("cpu",)
    assert some.to_dict() == {"cpu": 1, "memory": 0}
    assert some.amounts_of(("memory", "cpu", "pods")) == (0, 1, 0)
    assert Resources.in_order(("cpu", "memory"), (1, 0)) == some
    assert (some.negative, Resources.of({"cpu": -1}).negative, Resources.of({}).negative) == (False, True, False)
