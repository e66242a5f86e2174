"""The webhook program, called by a real API server."""

import contextlib
import functools
import itertools
import json
import signal
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from certs.replicas import PREFIX, RECORDS_LEASE
from provisioner.apis.meta import ObjectMeta
from provisioner.kube.errors import ApiError, Invalid, NotFound
from provisioner.kube.resources import CONFIGMAPS, LEASES, MUTATINGWEBHOOKS, NODEPOOLS, SECRETS, VALIDATINGWEBHOOKS
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.devcluster.errors import StateError
from tests.support import impostor
from tests.support.definitions import with_definitions
from tests.support.eventually import PATIENCE, eventually
from tests.support.hook import ARM64, HOME, IN_ARM64, PROGRAM, SECRET, Hook, requirements
from tests.support.impostor import Impostor
from tests.support.rawhttp import Address, get, post
from webhook.registration import CONFIGURATION_NAME

pytestmark = pytest.mark.plane


@pytest.fixture(scope="module")
def hook(plane: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hook]:
    """One webhook for the tests of this file, gone afterwards with everything it made."""
    hook = Hook(plane, tmp_path_factory.mktemp("certs"))
    with_definitions(plane)
    hook.start()
    try:
        yield hook
    finally:
        hook.close()


def test_a_pod_is_stamped_by_its_annotation(hook: Hook) -> None:
    pod = hook.create(hook.namespace(), ARM64)
    assert requirements(pod) == [IN_ARM64]
    assert pod["metadata"]["annotations"]["dovetail.dev/stamped"] == "arch=arm64 (pod)"
    assert pod["spec"]["schedulerName"] == "default-scheduler"


def test_without_opt_in_a_pod_stays_as_it_is(hook: Hook) -> None:
    pod = hook.create(hook.namespace())
    assert requirements(pod) == []
    assert "annotations" not in pod["metadata"]


def test_the_first_pod_of_a_new_namespace_gets_its_labels(hook: Hook) -> None:
    for _ in range(10):
        pod = hook.create(hook.namespace(capacity_type="spot_on-demand", scheduler="enabled"))
        (expression,) = requirements(pod)
        assert expression["values"] == ["on-demand", "spot"]
        assert pod["spec"]["schedulerName"] == "dovetail-scheduler"
        assert pod["metadata"]["annotations"]["dovetail.dev/stamped"] == (
            "capacity-type=on-demand,spot (namespace); schedulerName=dovetail-scheduler (namespace)"
        )


def test_every_stamp_at_once_is_admitted(hook: Hook) -> None:
    name = f"hook-{uuid.uuid4().hex[:8]}"
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    taint = {"key": "example.com/gpu", "value": "yes", "effect": "NoSchedule"}
    template = {"spec": {"nodeClassRef": reference, "requirements": [], "taints": [taint]}}
    pool = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"template": template},
    }
    settings = {
        "nodepool": name,
        "spread": "zone",
        "protect_jobs": "enabled",
        "legacy_labels": "rewrite",
        "os": "linux",
    }
    namespace = hook.namespace(**settings, scheduler="enabled")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "nightly", "uid": str(uuid.uuid4()), "controller": True}

    def made() -> dict[str, Any]:
        selector = {"beta.kubernetes.io/arch": "arm64"}
        pod = hook.create(namespace, {}, {"app": "a"}, [owner], dry_run=True, nodeSelector=selector)
        return pod if any(one.get("key") == "example.com/gpu" for one in pod["spec"]["tolerations"]) else {}

    hook.client.create(NODEPOOLS, pool)
    try:
        pod = eventually(made, "the webhook has seen the NodePool", seconds=40)
    finally:
        hook.client.delete(NODEPOOLS, name)
    assert [one["key"] for one in requirements(pod)] == ["kubernetes.io/os", "karpenter.sh/nodepool"]
    assert pod["spec"]["nodeSelector"] == {"kubernetes.io/arch": "arm64"}
    (spread,) = pod["spec"]["topologySpreadConstraints"]
    assert spread["labelSelector"] == {"matchLabels": {"app": "a"}}
    assert (spread["topologyKey"], spread["whenUnsatisfiable"]) == ("topology.kubernetes.io/zone", "ScheduleAnyway")
    assert pod["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"] == "true"
    assert pod["metadata"]["annotations"]["dovetail.dev/stamped"] == (
        "do-not-disrupt=true (namespace: pod of Job nightly); legacy-labels=rewrite (namespace: beta.kubernetes.io/arch); "
        f"nodepool={name} (namespace); os=linux (namespace); schedulerName=dovetail-scheduler (namespace); "
        f"spread=zone (namespace); tolerations=example.com/gpu=yes:NoSchedule (namespace: taints of NodePool {name})"
    )


def test_user_terms_are_kept(hook: Hook) -> None:
    mine = {"key": "team", "operator": "In", "values": ["a"]}
    terms = [{"matchExpressions": [mine]}, {"matchExpressions": [{**IN_ARM64, "operator": "NotIn"}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    pod = hook.create(hook.namespace(), ARM64, affinity=affinity)
    stored = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert stored["nodeSelectorTerms"] == [{"matchExpressions": [mine, IN_ARM64]}, terms[1]]


def test_exempt_pods_never_reach_the_webhook(hook: Hook) -> None:
    namespace = hook.namespace(arch="arm64")
    before = reviews(hook)
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "p", "uid": str(uuid.uuid4()), "controller": True}
    for pod in (
        hook.create(namespace, owners=[owner], affinity=pinned()),
        hook.create(namespace, labels={"dovetail.dev/stamp": "disabled"}),
        hook.create(namespace, {"dovetail.dev/stamp": "disabled"}),
        hook.create(namespace, nodeName="nowhere"),
        hook.create(hook.namespace(arch="arm64", stamp="disabled")),
    ):
        assert requirements(pod) == []
    assert requirements(hook.create(namespace)) == [IN_ARM64]
    eventually(lambda: reviews(hook) == before + 1, lambda: (before, reviews(hook)))


def reviews(hook: Hook) -> float:
    """Reviews of pods so far; a page of metrics may be some milliseconds old."""
    return hook.metric("dovetail_webhook_reviews_total")


def pinned() -> dict[str, Any]:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["nowhere"]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def test_a_pod_that_only_names_a_daemonset_is_stamped(hook: Hook) -> None:
    namespace = hook.namespace(arch="arm64")
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "p", "uid": str(uuid.uuid4()), "controller": True}
    before = reviews(hook)
    assert requirements(hook.create(namespace, owners=[owner])) == [IN_ARM64]
    assert requirements(hook.create(namespace, owners=[{**owner, "name": "other"}])) == [IN_ARM64]
    assert requirements(hook.create(namespace, owners=[{**owner, "apiVersion": "apps.example.com/v1"}])) == [IN_ARM64]
    eventually(lambda: reviews(hook) == before + 3, lambda: (before, reviews(hook)))


def test_a_pod_for_one_node_and_a_windows_pod_are_not_stamped_against_their_spec(hook: Hook) -> None:
    namespace = hook.namespace(arch="arm64", os="linux")
    affinity = pinned()
    pod = hook.create(namespace, affinity=affinity)
    assert pod["spec"]["affinity"] == affinity
    assert requirements(hook.create(namespace, os={"name": "windows"})) == []


def test_cluster_defaults_come_and_go(hook: Hook) -> None:
    namespace = hook.namespace()
    name = "dovetail-defaults"
    metadata = ObjectMeta(name=name, namespace=HOME)
    hook.client.create(
        CONFIGMAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"os": "linux"}}, HOME
    )
    try:
        eventually(lambda: requirements(hook.create(namespace, dry_run=True)), "the default is stamped")
    finally:
        hook.client.delete(CONFIGMAPS, name, HOME)
    eventually(lambda: not requirements(hook.create(namespace, dry_run=True)), "the default is gone")


def test_a_dry_run_is_stamped_alike(hook: Hook) -> None:
    assert requirements(hook.create(hook.namespace(), ARM64, dry_run=True)) == [IN_ARM64]


def test_a_deployment_keeps_its_template(hook: Hook) -> None:
    namespace = hook.namespace()
    template = {
        "metadata": {"labels": {"app": "a"}, "annotations": ARM64},
        "spec": {"serviceAccountName": "mine", "containers": [{"name": "c", "image": "i"}]},
    }
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "a"}}, "template": template}
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": spec}
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    hook.client.raw("POST", path, body)

    def pods() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(hook.client.raw("GET", f"/api/v1/namespaces/{namespace}/pods"))[
            "items"
        ]
        return found if len(found) == 2 else []

    for pod in eventually(pods, "two pods"):
        assert requirements(pod) == [IN_ARM64]
    stored = json.loads(hook.client.raw("GET", f"{path}/a"))
    assert "affinity" not in stored["spec"]["template"]["spec"]


def test_the_configuration_comes_back(hook: Hook) -> None:
    deleted = hook.client.get(MUTATINGWEBHOOKS, CONFIGURATION_NAME).metadata.uid
    hook.client.delete(MUTATINGWEBHOOKS, CONFIGURATION_NAME)
    eventually(lambda: _uid_of_configuration(hook) not in {"", deleted}, "registered again")
    eventually(hook.stamps, "CA injected")


def test_objects_are_validated(hook: Hook) -> None:
    """Creations and changes of the spec, by the rules of lint; what is bad already may be changed; metadata is left alone."""
    name = f"hook-{uuid.uuid4().hex[:8]}"
    path = "/apis/karpenter.sh/v1/nodepools"
    good, bad = _pool(name, "spot"), _pool(name, "SPOT")

    eventually(hook.validates, "the CA is in the validating configuration too", seconds=40)
    hook.client.raw("POST", path, good)
    changes: list[dict[str, Any]] = [
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"finalizers": ["example.com/a"]}},
        {"metadata": {"finalizers": None}},
    ]
    claim = {**bad, "kind": "NodeClaim", "spec": good["spec"]["template"]["spec"]}
    claim["metadata"] = {"name": name, "labels": {"karpenter.sh/nodepool": name}}
    claims = "/apis/karpenter.sh/v1/nodeclaims"

    def reviews(*acts: Callable[[], object]) -> float:
        """How many reviews these caused; on a crowded machine an earlier one may be counted late, or one not be waited for."""
        before = hook.metric("dovetail_webhook_validations_total")
        for act in acts:
            act()
        return hook.metric("dovetail_webhook_validations_total") - before

    def refused() -> bool:
        try:
            hook.client.patch(NODEPOOLS, name, {"spec": bad["spec"]})
        except Invalid as error:
            return '"SPOT" is not a capacity type' in str(error)
        hook.client.patch(NODEPOOLS, name, {"spec": good["spec"]})
        return False

    try:
        patches = [functools.partial(hook.client.patch, NODEPOOLS, name, change) for change in changes]
        eventually(lambda: reviews(*patches) == 0, "changes of metadata are not asked about")
        eventually(refused, "a bad spec is denied")
        weights = itertools.count(3)  # a patch that changes nothing is not asked about
        eventually(
            lambda: reviews(lambda: hook.client.patch(NODEPOOLS, name, {"spec": {"weight": next(weights)}})) == 1,
            "a change of the spec is asked about",
        )
        eventually(
            lambda: reviews(lambda: hook.client.raw("POST", claims, claim, query={"dryRun": "All"})) == 0,
            "a NodeClaim of a NodePool is not asked about",
        )
    finally:
        hook.client.delete(NODEPOOLS, name)


def test_an_overlay_in_conflict_with_another_is_denied(hook: Hook) -> None:
    name, path = f"hook-{uuid.uuid4().hex[:8]}", "/apis/karpenter.sh/v1alpha1/nodeoverlays"
    overlay = {
        "apiVersion": "karpenter.sh/v1alpha1",
        "kind": "NodeOverlay",
        "metadata": {"name": name},
        "spec": {
            "requirements": [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [name]}],
            "price": "0.1",
            "weight": 77,
        },
    }
    hook.client.raw("POST", path, overlay)

    def denied() -> bool:
        try:
            hook.client.raw("POST", path, {**overlay, "metadata": {"name": f"{name}-2"}}, query={"dryRun": "All"})
        except Invalid as error:
            return f'NodeOverlay "{name}" of the same weight' in str(error)
        return False

    try:
        eventually(denied, "the webhook knows the other NodeOverlay, and its CA is known", seconds=40)
    finally:
        hook.client.raw("DELETE", f"{path}/{name}")


def test_a_warning_reaches_whoever_writes_an_object(hook: Hook) -> None:
    pool = json.dumps(_pool(f"hook-{uuid.uuid4().hex[:8]}", "spot", "nowhere"))

    def told() -> bool:
        try:
            hook.plane.kubectl("create", "--dry-run=server", "--warnings-as-errors", "-f", "-", stdin=pool)
        except StateError as error:
            return 'KWOKNodeClass "nowhere" does not exist' in str(error)
        return False

    eventually(told, "a warning", seconds=40)


def _pool(name: str, capacity_type: str, of: str = "default") -> dict[str, Any]:
    node_class = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": of}
    requirement = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity_type]}
    template = {"spec": {"nodeClassRef": node_class, "requirements": [requirement]}}
    metadata = {"name": name}
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": metadata, "spec": {"template": template}}


def test_the_validating_configuration_comes_back(hook: Hook) -> None:
    deleted = hook.client.get(VALIDATINGWEBHOOKS, CONFIGURATION_NAME).metadata.uid
    hook.client.delete(VALIDATINGWEBHOOKS, CONFIGURATION_NAME)

    def back() -> bool:
        try:
            found = hook.client.get(VALIDATINGWEBHOOKS, CONFIGURATION_NAME)
        except NotFound:
            return False
        mutating = hook.client.get(MUTATINGWEBHOOKS, CONFIGURATION_NAME)
        bundles = {one.webhooks[0].client_config.ca_bundle for one in (found, mutating)}
        return found.metadata.uid != deleted and len(bundles) == 1 and None not in bundles

    eventually(back, "registered again, with the same bundle as the mutating one", seconds=40)


def _uid_of_configuration(hook: Hook) -> str:
    try:
        return hook.client.get(MUTATINGWEBHOOKS, CONFIGURATION_NAME).metadata.uid
    except NotFound:
        return ""


def test_a_wiped_bundle_comes_back(hook: Hook) -> None:
    patch = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
    hook.client.patch(MUTATINGWEBHOOKS, CONFIGURATION_NAME, patch, kind="json")
    eventually(
        lambda: hook.client.get(MUTATINGWEBHOOKS, CONFIGURATION_NAME).webhooks[0].client_config.ca_bundle, "bundle"
    )
    eventually(hook.stamps, "stamped again")


def test_many_at_once(hook: Hook) -> None:
    namespace = hook.namespace(arch="arm64")
    before = reviews(hook)
    with ThreadPoolExecutor(16) as pool:
        pods = list(pool.map(lambda _: hook.create(namespace, dry_run=True), range(300)))
    assert all(requirements(pod) == [IN_ARM64] for pod in pods)
    eventually(lambda: reviews(hook) == before + 300, lambda: (before, reviews(hook)))


def test_its_key_is_not_in_its_log(hook: Hook) -> None:
    key = hook.client.get(SECRETS, SECRET, HOME).data["tls.key"].decode()
    log = hook.plane.log(PROGRAM).read_text()
    assert key.splitlines()[1] not in log
    assert "PRIVATE KEY" not in log


def test_each_replica_shows_what_it_serves(hook: Hook) -> None:
    found = hook.client.get(LEASES, RECORDS_LEASE, HOME).metadata.annotations
    (text,) = (value for key, value in found.items() if key.startswith(PREFIX))
    assert len(text.partition(" ")[0]) == 64


def pool_is_written(hook: Hook) -> None:
    """A NodePool that is denied while it answers is created, and changed in its spec; each takes at most the timeout of 2 s and some."""
    name = f"hook-{uuid.uuid4().hex[:8]}"
    started = time.monotonic()
    hook.client.create(NODEPOOLS, _pool(name, "SPOT"))
    try:
        hook.client.patch(NODEPOOLS, name, {"spec": _pool(name, "Spot")["spec"]})
        assert time.monotonic() - started < 8 * PATIENCE
    finally:
        hook.client.delete(NODEPOOLS, name)


def test_pods_and_nodepools_are_admitted_while_it_hangs(hook: Hook) -> None:
    eventually(hook.validates, "NodePools are validated", seconds=40)
    namespace = hook.namespace(arch="arm64")
    hook.plane.signal(PROGRAM, signal.SIGSTOP)
    try:
        started = time.monotonic()
        assert requirements(hook.create(namespace)) == []
        assert time.monotonic() - started < 4 * PATIENCE, "at most the timeout of 2 s and some"
        pool_is_written(hook)
    finally:
        hook.plane.signal(PROGRAM, signal.SIGCONT)
    eventually(lambda: requirements(hook.create(namespace, dry_run=True)), "stamped again")
    eventually(hook.validates, "NodePools are validated again")


def test_pods_and_nodepools_are_admitted_when_it_is_killed(hook: Hook) -> None:
    eventually(hook.validates, "NodePools are validated", seconds=40)
    namespace = hook.namespace(arch="arm64")
    hook.plane.signal(PROGRAM, signal.SIGKILL)
    started = time.monotonic()
    assert requirements(hook.create(namespace)) == []
    assert time.monotonic() - started < 2 * PATIENCE, "a refused connection costs nothing"
    pool_is_written(hook)
    hook.plane.stop(PROGRAM)
    hook.start()  # takes up the certificate that lies in its directory
    assert requirements(hook.create(namespace)) == [IN_ARM64]
    eventually(hook.validates, "NodePools are validated again")


BEHAVIOURS = (
    impostor.silent,
    impostor.slow,
    impostor.late,
    impostor.garbage,
    impostor.no_json,
    impostor.endless,
    impostor.somebody_elses,
)


def test_pods_are_admitted_whatever_answers_in_its_place(hook: Hook) -> None:
    """At most the timeout of 2 s and some; none is refused, and none is changed."""
    namespace = hook.namespace(arch="arm64")
    hook.plane.stop(PROGRAM)
    try:
        for behave in BEHAVIOURS:
            with Impostor(hook.address, hook.serving_file, behave) as server:
                started = time.monotonic()
                assert requirements(hook.create(namespace)) == [], behave.__name__
                assert time.monotonic() - started < 4 * PATIENCE, behave.__name__
                assert server.requests, f"{behave.__name__}: nobody asked"
    finally:
        hook.start()
    assert requirements(hook.create(namespace)) == [IN_ARM64]


def test_a_pod_that_the_api_refuses_is_refused_as_before(hook: Hook) -> None:
    with pytest.raises(ApiError, match="Invalid"):
        hook.create(hook.namespace(arch="arm64"), restartPolicy="Sometimes")


SLOW: dict[str, Callable[[Address], object]] = {
    "say nothing": lambda address: address.tcp(),
    "begin a handshake": lambda address: address.tcp().send(b"\x16"),
    "say nothing after their handshake, as Go's unused ones": lambda address: address.peer(),
    "begin a review": lambda address: address.peer().send(post(b"{}", "/mutate")[:-1]),
    "ask and take no answer": lambda address: address.peer().send(get("/healthz") * 500),
}


@pytest.mark.parametrize("begin", SLOW.values(), ids=SLOW.keys())
def test_peers_in_hundreds_delay_nobody_that(begin: Callable[[Address], object], hook: Hook) -> None:
    """Eight of them stopped it. `Ignore` and a timeout of 2 s: an unstamped pod is how one notices."""
    host, _, port = hook.address.rpartition(":")
    address = Address(int(port), tls=True, host=host)
    namespace = hook.namespace()
    try:
        for _ in range(300):
            with contextlib.suppress(OSError):
                begin(address)
        eventually(
            lambda: [requirements(hook.create(namespace, ARM64)) for _ in range(5)] == [[IN_ARM64]] * 5,
            "five pods in a row are stamped",
            seconds=3,
        )
        with urllib.request.urlopen(f"{hook.metrics}/healthz", timeout=5) as answer:
            assert b"reviews: ok" in answer.read()
    finally:
        address.leave()


def test_a_dead_scheduler_gets_no_more_pods(hook: Hook) -> None:
    namespace = hook.namespace(scheduler="enabled")

    def scheduler() -> str:
        name: str = hook.create(namespace, dry_run=True)["spec"]["schedulerName"]
        return name

    eventually(lambda: scheduler() == "dovetail-scheduler", "given to ours")
    hook.plane.signal("kube-scheduler", signal.SIGKILL)
    try:
        eventually(lambda: scheduler() == "default-scheduler", "its Lease ran out", seconds=90, pause=0.5)
        eventually(lambda: hook.metric("dovetail_webhook_scheduler_held_back_total") >= 1, "it is counted")
    finally:
        hook.plane.start("kube-scheduler")
    eventually(lambda: scheduler() == "dovetail-scheduler", "given to ours again", seconds=40, pause=0.2)
