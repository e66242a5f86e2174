"""What VerticalPodAutoscalers make of pods at admission: whose pods, when, and within which bounds."""

from typing import Any

import msgspec
import pytest

from provisioner.apis.core import LimitRange, LimitRangeItem, LimitRangeSpec
from provisioner.apis.pods import decode_pod
from provisioner.apis.shapes import grown_shape
from provisioner.apis.vpa import MODES, TargetKey, VerticalPodAutoscaler, bounds_of, recommended, targets_of
from provisioner.values.quantity import Quantity
from tests.support.autoscalers import REPLICA_SET, autoscaler, sized_pod
from tests.support.pods import Wire, wire_pod

LABELS = {"pod-template-hash": "5d4f8c7b9"}
CHAINS: dict[str, tuple[tuple[str, str] | None, dict[str, str], list[tuple[str, str]]]] = {
    "a Deployment's": (("ReplicaSet", REPLICA_SET), LABELS, [("Deployment", "web")]),
    "a Rollout's": (
        ("ReplicaSet", "web-77"),
        {"rollouts-pod-template-hash": "77"},
        [("Rollout", "web")],
    ),
    "a ReplicaSet's own": (("ReplicaSet", "web-abc"), {}, [("ReplicaSet", "web-abc")]),
    "the hash of another ReplicaSet": (("ReplicaSet", "web-abc"), LABELS, [("ReplicaSet", "web-abc")]),
    "an empty hash": (("ReplicaSet", "web-"), {"pod-template-hash": ""}, [("ReplicaSet", "web-")]),
    "a StatefulSet's": (("StatefulSet", "db"), {}, [("StatefulSet", "db")]),
    "a Job's": (("Job", "import"), {}, [("Job", "import")]),
    "a CronJob's": (("Job", "import-29401234"), {}, [("CronJob", "import"), ("Job", "import-29401234")]),
    "of a controller with a scale": (("Workers", "w"), {}, [("Workers", "w")]),
    "of its own": (None, LABELS, []),
}


@pytest.mark.parametrize(("owner", "labels", "want"), CHAINS.values(), ids=CHAINS)
def test_a_target_is_the_topmost_controller(
    owner: tuple[str, str] | None, labels: dict[str, str], want: list[tuple[str, str]]
) -> None:
    found = targets_of(sized_pod(owner=owner, labels=labels))
    assert found == tuple(TargetKey("shop", *one) for one in want)


@pytest.mark.parametrize("mode", [None, "Initial", "Recreate", "Auto", "InPlaceOrRecreate", "InPlace"])
def test_modes_that_apply_at_admission(mode: str | None) -> None:
    assert autoscaler(mode=mode).target == TargetKey("shop", "Deployment", "web")
    assert (mode or "") in MODES


@pytest.mark.parametrize("mode", ["Off", "SomethingNew"])
def test_modes_that_do_not_and_those_that_nobody_knows(mode: str) -> None:
    assert autoscaler(mode=mode).target is None


def test_one_without_a_target_is_nobodys() -> None:
    assert autoscaler(target=None).target is None


Policy = Wire
APP = {"containerName": "app"}
LIMITED = {"requests": {"cpu": "100m", "memory": "100Mi"}, "limits": {"cpu": "200m", "memory": "150Mi"}}
SIZES: dict[str, tuple[Wire, tuple[Policy, ...], Wire, Wire]] = {
    "the target": ({"cpu": "100m"}, (), {"cpu": "900m", "memory": "1Gi"}, {"cpu": 900, "memory": 2**30}),
    "in other units": (
        {"cpu": 1, "memory": "128974848"},
        (),
        {"cpu": "1500m", "memory": "262144k"},
        {"cpu": 1500, "memory": 262_144_000},
    ),
    "what is smaller is not": (
        {"cpu": "1", "memory": "1Gi"},
        (),
        {"cpu": "10m", "memory": "2Gi"},
        {"cpu": 1000, "memory": 2**31},
    ),
    "nothing recommended": ({"cpu": "100m"}, (), {}, {"cpu": 100}),
    "at least minAllowed": ({"cpu": "100m"}, ({**APP, "minAllowed": {"cpu": "2"}},), {"cpu": "900m"}, {"cpu": 2000}),
    "at most maxAllowed": (
        {"cpu": "100m"},
        ({**APP, "maxAllowed": {"cpu": "500m"}},),
        {"cpu": "900m"},
        {"cpu": 500},
    ),
    "maxAllowed below the request": (
        {"cpu": "100m"},
        ({**APP, "maxAllowed": {"cpu": "50m"}},),
        {"cpu": "900m"},
        {"cpu": 100},
    ),
    "bounds that contradict": (
        {"cpu": "100m"},
        ({**APP, "minAllowed": {"cpu": "2"}, "maxAllowed": {"cpu": "1"}},),
        {"cpu": "900m"},
        {"cpu": 1000},
    ),
    "bounds of 0 bound nothing": (
        {"cpu": "100m"},
        ({**APP, "minAllowed": {"cpu": 0}, "maxAllowed": {"cpu": "0"}},),
        {"cpu": "900m"},
        {"cpu": 900},
    ),
    "minAllowed of what is not recommended": (
        {"cpu": "100m"},
        ({**APP, "minAllowed": {"memory": "2Gi"}},),
        {"cpu": "900m"},
        {"cpu": 900},
    ),
    "the policy of every other container": (
        {"cpu": "100m"},
        ({"containerName": "*", "maxAllowed": {"cpu": "300m"}},),
        {"cpu": "900m"},
        {"cpu": 300},
    ),
    "its own policy before that": (
        {"cpu": "100m"},
        ({"containerName": "*", "maxAllowed": {"cpu": "300m"}}, {**APP, "maxAllowed": {"cpu": "700m"}}),
        {"cpu": "900m"},
        {"cpu": 700},
    ),
    "a container that is off": ({"cpu": "100m"}, ({**APP, "mode": "Off"},), {"cpu": "900m"}, {"cpu": 100}),
    "all others off": (
        {"cpu": "100m"},
        ({"containerName": "*", "mode": "Off"}, {**APP, "mode": "Auto"}),
        {"cpu": "900m"},
        {"cpu": 900},
    ),
    "memory alone": (
        {"cpu": "100m"},
        ({**APP, "controlledResources": ["memory"]},),
        {"cpu": "900m", "memory": "1Gi"},
        {"cpu": 100, "memory": 2**30},
    ),
    "nothing controlled": ({"cpu": "100m"}, ({**APP, "controlledResources": []},), {"cpu": "900m"}, {"cpu": 100}),
    "of other resources nothing": (
        {"cpu": "100m"},
        (),
        {"cpu": "900m", "nvidia.com/gpu": "4"},
        {"cpu": 900},
    ),
    "requests alone, at most the limit": (
        LIMITED,
        ({**APP, "controlledValues": "RequestsOnly"},),
        {"cpu": "900m", "memory": "120Mi"},
        {"cpu": 200, "memory": 120 * 2**20},
    ),
    "an amount that cannot be read": (
        {"cpu": "100m"},
        (),
        {"cpu": "much", "memory": "1Gi"},
        {"cpu": 100, "memory": 2**30},
    ),
    "an amount below 0": ({"cpu": "100m"}, (), {"cpu": "-1"}, {"cpu": 100}),
    "a bound that cannot be read": (
        {"cpu": "100m"},
        ({**APP, "maxAllowed": {"cpu": "little"}},),
        {"cpu": "900m"},
        {"cpu": 900},
    ),
}


def grown(one: VerticalPodAutoscaler, spec: Wire | None = None, **containers: Any) -> tuple[Wire, Wire]:
    pod = sized_pod(spec=spec, **containers)
    assert pod.amounts is not None
    shape = grown_shape(pod.shape, recommended(pod.amounts.spec, one))
    return {k: v for k, v in shape.requests.items() if k != "pods"}, dict(shape.limits)


@pytest.mark.parametrize(("asked", "policies", "target", "want"), SIZES.values(), ids=SIZES)
def test_what_one_container_will_ask_for(asked: Wire, policies: tuple[Wire, ...], target: Wire, want: Wire) -> None:
    requests, _ = grown(autoscaler(policies=policies, app=target), app=asked)
    assert requests == want


def test_limits_grow_as_requests_do() -> None:
    _, limits = grown(autoscaler(app={"cpu": "900m", "memory": "300Mi"}), app=LIMITED)
    assert limits == {"cpu": 1800, "memory": 450 * 2**20}
    same = {"requests": {"cpu": "100m"}, "limits": {"cpu": "0.1"}}
    assert grown(autoscaler(app={"cpu": "900m"}), app=same) == ({"cpu": 900}, {"cpu": 900})
    assert grown(autoscaler(app={"cpu": "900m"}), app={"limits": {"cpu": "1"}}) == ({"cpu": 900}, {"cpu": 1000})


BOUNDS: dict[str, tuple[Wire, Wire, Wire, int]] = {
    "no limit, so no upper bound": ({"requests": {"cpu": "100m"}}, {}, {"cpu": "200m"}, 900),
    "the limit is not above the bound": (
        {"requests": {"cpu": "100m"}, "limits": {"cpu": "200m"}},
        {},
        {"cpu": "1"},
        500,
    ),
    "a limit without a request": ({"limits": {"cpu": "200m"}}, {}, {"cpu": "600m"}, 600),
    "at least the lower bound": ({"requests": {"cpu": "100m"}}, {"cpu": "2"}, {}, 2000),
    "nor is the limit below it": (
        {"requests": {"cpu": "200m"}, "limits": {"cpu": "100m"}},
        {"cpu": "2"},
        {},
        4000,
    ),
    "bounds of other resources": ({"requests": {"cpu": "100m"}}, {"memory": "2Gi"}, {"memory": "4Gi"}, 900),
}


@pytest.mark.parametrize(("asked", "low", "high", "want"), BOUNDS.values(), ids=BOUNDS)
def test_limit_ranges_of_containers_bound_what_is_given(asked: Wire, low: Wire, high: Wire, want: int) -> None:
    items = (
        LimitRangeItem(type="Container", min=low, max=high),
        LimitRangeItem(type="Pod", max={"cpu": "1m"}),
        LimitRangeItem(type="Container", default={"cpu": "1m"}),
    )
    bounds = bounds_of((LimitRange(spec=LimitRangeSpec(limits=items)),))
    assert len(bounds) == 1
    pod = sized_pod(app=asked)
    assert pod.amounts is not None
    (container,) = recommended(pod.amounts.spec, autoscaler(app={"cpu": "900m"}), bounds).containers
    assert Quantity.parse(container.resources.requests["cpu"]).millis() == want


def test_the_policy_is_applied_after_limit_ranges() -> None:
    bounds = (LimitRangeItem(type="Container", min={"cpu": "2"}),)
    one = autoscaler(policies=({**APP, "maxAllowed": {"cpu": "1"}},), app={"cpu": "900m"})
    pod = sized_pod()
    assert pod.amounts is not None
    (container,) = recommended(pod.amounts.spec, one, bounds).containers
    assert container.resources.requests["cpu"] == "1"


def test_containers_add_up_with_those_that_nobody_sizes() -> None:
    """The sum is what counts: a container that shrinks makes room for one that grows."""
    one = autoscaler(app={"cpu": "900m"}, proxy={"cpu": "50m"}, gone={"cpu": "8"})
    requests, _ = grown(one, app={"cpu": "100m"}, proxy={"cpu": "200m"}, other={"cpu": "30m"})
    assert requests == {"cpu": 980}


def test_what_is_no_containers_stays() -> None:
    spec: Wire = {
        "overhead": {"cpu": "20m"},
        "initContainers": [
            {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "5m"}}},
            {"name": "app", "resources": {"requests": {"cpu": "10m"}}},
        ],
    }
    requests, _ = grown(autoscaler(app={"cpu": "900m"}, side={"cpu": "3"}), spec, app={"cpu": "100m"})
    assert requests == {"cpu": 925}
    whole: Wire = {"resources": {"requests": {"cpu": "1"}}}
    assert grown(autoscaler(app={"cpu": "3"}), whole, app={"cpu": "100m"}) == ({"cpu": 1000}, {})


def test_amounts_of_pods_are_kept_where_they_are_asked_for() -> None:
    data = msgspec.json.encode(wire_pod(1))
    brother = msgspec.json.encode(wire_pod(2))
    assert decode_pod(data).amounts is None
    one, two = decode_pod(data, amounts=True), decode_pod(brother, amounts=True)
    assert one.amounts is not None
    assert one.amounts is two.amounts
    (container,) = one.amounts.spec.containers
    assert (container.name, container.image, container.ports) == ("web", "", ())
    assert container.resources.requests == {"cpu": "250m", "memory": "512Mi"}


def test_pods_of_other_containers_share_a_class_but_not_their_amounts() -> None:
    one, two = sized_pod(app={"cpu": "1"}, proxy={"cpu": "2"}), sized_pod(app={"cpu": "2"}, proxy={"cpu": "1"})
    assert one.shape is two.shape
    assert one.amounts is not two.amounts


def test_of_a_pod_that_says_too_much_no_amounts_are_kept() -> None:
    many: dict[str, Any] = {f"c{number}": {"cpu": "1m"} for number in range(300)}
    assert sized_pod(**many).amounts is None
