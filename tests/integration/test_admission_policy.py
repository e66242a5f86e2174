"""The admission policy on a real API server stamps pods as the webhook's decision says: tables, and pods at random.

Pods are dry-run requests. What the policy cannot do (webhook/policy.py lists it) is not asked for here.
"""

import copy
import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.selections import MOST_ELEMENTS
from provisioner.apis.stamping import MAX_VALUES, STAMPS, StampFacts, decide
from provisioner.kube.client import Client
from provisioner.kube.config import connect
from provisioner.kube.errors import ApiError
from provisioner.kube.resources import NODEPOOLS
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.simulator import json_patch
from provisioner.support.clock import SystemClock
from tests.support.definitions import send, with_definitions
from tests.support.eventually import eventually
from tests.support.hook import Hook
from tests.support.imagehosts import Hosts, Store, hosts, index
from tests.support.stamping_cases import ARCH_KEY, EXEMPT, HANDS_OFF, INTO, SOURCES, WINDOWS_PODS
from tests.support.stamping_cases import pod as a_pod
from webhook.policy import binding, policy
from webhook.review import decode_pod

pytestmark = pytest.mark.plane

Document = dict[str, Any]
SEEDS: Final = 400
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
NAMESPACES: dict[str, dict[str, str]] = {
    "policy-plain": {},
    "policy-labels": {
        "dovetail.dev/arch": "arm64_amd64",
        "dovetail.dev/os": "linux",
        "dovetail.dev/spread": "zone",
        "dovetail.dev/protect-jobs": "enabled",
    },
    "policy-odd": {"dovetail.dev/arch": "sparc", "dovetail.dev/capacity-type": "spot", "dovetail.dev/stamp": "enabled"},
    "policy-scheduler": {"dovetail.dev/scheduler": "enabled", "dovetail.dev/arch": "arm64"},
    "policy-out": {"dovetail.dev/stamp": "off", "dovetail.dev/arch": "amd64"},
}
NAMESPACES |= {f"policy-source-{at}": case.namespace for at, case in enumerate(SOURCES.values()) if case.namespace}
UNTOUCHED: Final = "policy-disabled"
"""A namespace whose pods are not stamped."""
ALONE: Final = "policy-elsewhere"
"""A namespace that the policy is not bound to."""
DEFAULTS: Final[tuple[dict[str, str], ...]] = (
    {},
    {"arch": " amd64 ", "nodepool": "general", "protect-jobs": "enabled", "capacity-type": "on-demand,spot"},
    {"os": "windows,linux", "spread": "zone"},
    {"arch": "amd64", "stamp": "disabled"},
)
POLICIES: Final = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
BINDINGS: Final = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"
CONFIG_MAP: Final = "/api/v1/namespaces/dovetail-system/configmaps"


@pytest.fixture(scope="module")
def client(plane: DevCluster) -> Iterator[Client]:
    """A client of a cluster with the policy, bound to a ConfigMap without defaults; both are taken away again."""
    client = Client(connect(str(plane.kubeconfig), user_agent="dovetail-tests"), SystemClock())
    off = {"dovetail.dev/stamp": "disabled"}
    for name, labels in {**NAMESPACES, UNTOUCHED: off, ALONE: {}, names.OWN_NAMESPACE: {}}.items():
        created(client, "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        account = f"/api/v1/namespaces/{name}/serviceaccounts"
        created(client, account, {"metadata": {"name": "default"}})
    created(client, CONFIG_MAP, {"metadata": {"name": "dovetail-defaults"}})
    created(client, POLICIES, policy())
    bound = binding()
    elsewhere = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [ALONE]}
    bound["spec"]["matchResources"] = {"namespaceSelector": {"matchExpressions": [elsewhere]}}
    created(client, BINDINGS, bound)
    yield client
    for path in (f"{BINDINGS}/dovetail-stamping", f"{POLICIES}/dovetail-stamping", f"{CONFIG_MAP}/dovetail-defaults"):
        client.raw("DELETE", path)


def created(client: Client, path: str, body: Document) -> None:
    """Create an object that may be there."""
    try:
        send(client, "POST", path, body, dry=False)
    except ApiError as error:
        if error.status != 409:
            raise


def defaulted(client: Client, data: dict[str, str]) -> None:
    """Set the defaults, and wait until the policy goes by them."""
    send(
        client,
        "PUT",
        f"{CONFIG_MAP}/dovetail-defaults",
        {"metadata": {"name": "dovetail-defaults"}, "data": {**data, "probe": "x"}},
        dry=False,
    )
    # a pod whose stamps depend on nothing but the defaults tells which of them the API server's cache holds
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "probe", "uid": "u", "controller": True}
    probe = pod({"dovetail.dev/os": "linux"}, {"app": "x"})
    probe["metadata"]["ownerReferences"] = [job]
    want = expected(client, probe, "policy-plain", data)
    eventually(lambda: asked(client, "policy-plain", probe) == want, "a pod by the new defaults")


def pod(annotations: dict[str, str], labels: dict[str, str] | None = None, **spec: Any) -> Document:
    """A pod without anything that the API server would add."""
    metadata: Document = {"generateName": "web-"}
    if annotations:
        metadata["annotations"] = annotations
    if labels:
        metadata["labels"] = labels
    whole = {"containers": [{"name": "c", "image": "x"}], "automountServiceAccountToken": False, **spec}
    return {"metadata": metadata, "spec": whole}


def seen(answer: Document) -> Document:
    """A pod as the API server answers it, without what differs between any two."""
    kept = {key: answer["metadata"].get(key) or {} for key in ("annotations", "labels")}
    return {**kept, "spec": answer["spec"]}


def asked(client: Client, namespace: str, document: Document) -> Document:
    """The pod that the API server would make."""
    return seen(send(client, "POST", f"/api/v1/namespaces/{namespace}/pods", document))


def patched(document: Document, namespace: str, defaults: dict[str, str]) -> Document:
    """The pod that the webhook would make of it, while our scheduler does not run and nothing is known of NodePools."""
    facts = StampFacts(namespace=namespace, namespace_labels=NAMESPACES.get(namespace, {}), defaults=defaults)
    result: Document = json_patch.apply(document, decide(decode_pod(msgspec.json.encode(document)), facts).operations)
    return result


def expected(client: Client, document: Document, namespace: str, defaults: dict[str, str]) -> Document:
    """What the API server makes of that pod where nothing else is stamped."""
    return asked(client, UNTOUCHED, patched(document, namespace, defaults))


def as_new(document: Document, answer: Document) -> Document:
    """A pod as it was answered, to be created once more."""
    metadata = {**document["metadata"], "annotations": answer["annotations"], "labels": answer["labels"]}
    return {"metadata": metadata, "spec": answer["spec"]}


def chosen(draw: random.Random, *values: Any) -> Any:
    """One of the values."""
    return draw.choice(values)


def random_term(draw: random.Random) -> Document:
    """A node selector term, perhaps an empty one."""
    keys = (
        "kubernetes.io/arch",
        "beta.kubernetes.io/arch",
        "kubernetes.io/os",
        "topology.kubernetes.io/zone",
        "karpenter.sh/nodepool",
    )
    term: Document = {}
    some = [
        {
            "key": key,
            "operator": operator,
            **({"values": chosen(draw, ["windows"], ["linux"], ["a", "b"])} if operator != "Exists" else {}),
        }
        for key in draw.sample(keys, draw.randrange(3))
        for operator in [chosen(draw, "In", "NotIn", "Exists")]
    ]
    if draw.random() < 0.1:
        some.append({"key": "node.kubernetes.io/windows-build", "operator": chosen(draw, "Exists", "DoesNotExist")})
    if some:
        term["matchExpressions"] = some
    if draw.random() < 0.15:
        term["matchFields"] = [{"key": "metadata.name", "operator": chosen(draw, "In", "NotIn"), "values": ["n1"]}]
    return term


def random_pod(draw: random.Random) -> Document:
    """A pod that the API server admits, mostly."""
    annotations = {
        key: chosen(draw, *values)
        for key, values in {
            "dovetail.dev/arch": ("arm64", " amd64 , arm64,", "sparc", "", ",", "amd64,amd64"),
            "dovetail.dev/os": ("linux", "windows", "linux,windows"),
            "dovetail.dev/capacity-type": ("spot", "reserved,spot", "SPOT"),
            "dovetail.dev/nodepool": ("general", "team-a.example", "General", "b, a,b"),
            "dovetail.dev/scheduler": ("enabled", "disabled"),
            "dovetail.dev/spread": ("zone", "rack", ""),
            "dovetail.dev/protect-jobs": ("enabled", "disabled", "yes"),
            "dovetail.dev/stamp": ("enabled", "disabled", ""),
            "dovetail.dev/stamped": (
                "arch=amd64 (pod); os=linux (cluster: why)",
                "nonsense",
                "x=y (pod); arch",
                "os=linux (moon)",
            ),
            "karpenter.sh/do-not-disrupt": ("true", "1h"),
        }.items()
        if draw.random() < (0.4 if key not in ("dovetail.dev/stamp", "karpenter.sh/do-not-disrupt") else 0.1)
    }
    labels = {key: "v" for key in ("app", "statefulset.kubernetes.io/pod-name", "tier") if draw.random() < 0.5}
    if draw.random() < 0.05:
        labels["dovetail.dev/stamp"] = chosen(draw, "disabled", "enabled", "off")
    spec: Document = {}
    if draw.random() < 0.4:
        node: Document = {}
        if draw.random() < 0.7:
            node[REQUIRED] = {"nodeSelectorTerms": [random_term(draw) for _ in range(draw.randrange(1, 4))]}
        if draw.random() < 0.3:
            node["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": 1, "preference": {"matchExpressions": [{"key": "kubernetes.io/arch", "operator": "Exists"}]}}
            ]
        spec["affinity"] = chosen(
            draw,
            {"nodeAffinity": node},
            {"nodeAffinity": node, "podAntiAffinity": {REQUIRED: [{"topologyKey": "x/y"}]}},
            {},
        )
    if draw.random() < 0.3:
        spec["nodeSelector"] = {
            chosen(
                draw,
                "kubernetes.io/arch",
                "beta.kubernetes.io/os",
                "kubernetes.io/os",
                "team",
                "karpenter.sh/provisioner-name",
            ): chosen(draw, "amd64", "windows", "linux")
        }
    if draw.random() < 0.1:
        spec["os"] = {"name": chosen(draw, "linux", "windows")}
    if draw.random() < 0.1:
        spec["securityContext"] = chosen(draw, {}, {"windowsOptions": {}}, {"windowsOptions": {"runAsUserName": "x"}})
    if draw.random() < 0.2:
        key = chosen(
            draw, "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone", "kubernetes.io/hostname"
        )
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": key,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"a": "b"}},
            }
        ]
    if draw.random() < 0.1:
        spec["schedulerName"] = chosen(draw, "volcano", "dovetail-scheduler", "default-scheduler")
    document = pod(annotations, labels, **spec)
    if draw.random() < 0.4:
        kind = chosen(draw, "Job", "ReplicaSet")
        document["metadata"]["ownerReferences"] = [
            {
                "apiVersion": chosen(draw, "batch/v1", "apps/v1"),
                "kind": kind,
                "name": chosen(draw, "nightly", "n" * 130, "a); os=linux (pod"),
                "uid": "u",
                "controller": chosen(draw, True, False),
            }
        ]
    return document


def test_pods_at_random_are_stamped_as_the_webhook_would(client: Client) -> None:
    stamped = refused = 0
    for part, data in enumerate(DEFAULTS):
        defaulted(client, data)
        for seed in range(part, SEEDS, len(DEFAULTS)):
            draw = random.Random(seed)
            document, namespace = random_pod(draw), draw.choice(sorted(NAMESPACES))
            try:
                answer = asked(client, namespace, document)
            except ApiError as error:
                if error.status != 422:
                    raise
                refused += 1
                continue
            assert answer == expected(client, document, namespace, data), seed
            stamped += patched(document, namespace, data) != document
            again = as_new(document, answer)
            assert patched(again, namespace, data) == again, seed
    print(f"{SEEDS} pods: {stamped} stamped, {refused} refused by the API server")
    assert stamped > SEEDS / 4
    assert refused < SEEDS / 4


@dataclass(frozen=True)
class Row:
    """A pod of the tables of the webhook, and where it is created."""

    document: Document
    namespace: str = "policy-plain"
    defaults: Mapping[str, str] = field(default_factory=dict)


def rows() -> Iterator[tuple[str, Row]]:
    for at, (name, case) in enumerate(SOURCES.items()):
        where = f"policy-source-{at}" if case.namespace else "policy-plain"
        if not any("/" in key for key in case.defaults):  # no key of a ConfigMap
            yield name, Row(tabled(case.annotations or None, case.labels or None), where, case.defaults)
    arm64 = {ARCH_KEY: "arm64"}
    for name, spec in HANDS_OFF.items():
        yield name, Row(tabled(arm64, **spec))
    for name, into in INTO.items():
        yield name, Row(tabled(arm64, affinity=into.affinity))
    for name, (document, where) in EXEMPT.items():
        defaults = {"arch": "arm64", "scheduler": "enabled"}
        yield f"exempt: {name}", Row(whole(document), "policy-plain" if where == "shop" else where, defaults)
    for name, spec in WINDOWS_PODS.items():
        wrong, either = (
            {"os": "linux", "arch": "arm64", "capacity-type": "spot"},
            {"os": "linux,windows", "arch": "amd64,arm64"},
        )
        yield f"Windows {name}", Row(tabled(**spec), defaults=wrong)
        yield f"Windows or Linux {name}", Row(tabled(**spec), defaults=either)
    spread = {"maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
    many = [{**spread, "topologyKey": f"k{at}"} for at in range(MOST_ELEMENTS + 1)]
    yield "as many constraints as are planned for", Row(tabled(arm64, topologySpreadConstraints=many[1:]))
    yield "one more", Row(tabled(arm64, topologySpreadConstraints=many))
    pools = ",".join(f"p{at}" for at in range(MAX_VALUES + 1))
    yield "as many NodePools as are stamped", Row(tabled({"dovetail.dev/nodepool": pools.removeprefix("p0,")}))
    yield "one NodePool more", Row(tabled({"dovetail.dev/nodepool": pools}))
    yield "the scheduler of its namespace", Row(tabled(), "policy-scheduler")
    yield "a scheduler of its own wish", Row(tabled({"dovetail.dev/scheduler": "enabled", ARCH_KEY: "arm64"}))


def tabled(annotations: dict[str, str] | None = None, labels: dict[str, str] | None = None, **spec: Any) -> Document:
    return whole(a_pod(annotations, labels, **spec))


def whole(document: Document) -> Document:
    """A pod of the tables with what the API server demands."""
    document = copy.deepcopy(document)
    spec = document["spec"]
    spec.setdefault("automountServiceAccountToken", False)
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        container.setdefault("image", "x")
    if "kubernetes.io/config.mirror" in document["metadata"].get("annotations", {}):
        spec["nodeName"] = "n1"
    for owner in document["metadata"].get("ownerReferences", ()):
        owner.setdefault("uid", "u")
    return document


def test_the_tables_of_the_webhook_hold_for_the_policy(client: Client) -> None:
    """No pod is ever given to our scheduler: the policy cannot see whether it is alive."""
    by_defaults = itertools.groupby(
        sorted(rows(), key=lambda one: sorted(one[1].defaults.items())), lambda one: one[1].defaults
    )
    others: dict[str, tuple[Document, Document]] = {}
    stamped = []
    for defaults, group in by_defaults:
        data = dict(defaults)
        defaulted(client, data)
        for name, row in group:
            answer = asked(client, row.namespace, row.document)
            want = expected(client, row.document, row.namespace, data)
            if answer != want:
                others[name] = (answer, want)
            if row.document != patched(row.document, row.namespace, data):
                stamped.append(name)
    assert others == {}
    assert len(stamped) > len(INTO) + len(WINDOWS_PODS)


def test_a_pod_as_large_as_they_get_is_stamped_within_the_budget_of_cel(client: Client) -> None:
    defaulted(client, DEFAULTS[1])
    terms = [
        {
            "matchExpressions": [
                {"key": f"example.com/{at}", "operator": "In", "values": ["a", "b", "c"]} for at in range(10)
            ]
        }
        for _ in range(40)
    ]
    containers = [{"name": f"c{at}", "image": "x"} for at in range(20)]
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    document = pod({f"a{at}": "x" * 5000 for at in range(20)}, affinity=affinity, containers=containers)
    answer = asked(client, "policy-labels", document)
    assert answer == expected(client, document, "policy-labels", DEFAULTS[1])
    assert "arch=amd64,arm64 (namespace)" in answer["annotations"]["dovetail.dev/stamped"]


GPU_POOL: Final = "policy-gpu"
TAINT: Final = {"key": "example.com/gpu", "value": "yes", "effect": "NoSchedule"}


@pytest.fixture
def images(tmp_path: Path) -> Iterator[Hosts]:
    """A registry with one image, for arm64."""
    store = Store()
    store.list("web/app", "1", index(("linux", "arm64")))
    with hosts(store, tmp_path) as made:
        yield made


@pytest.fixture
def hook(client: Client, plane: DevCluster, images: Hosts, tmp_path: Path) -> Iterator[Hook]:
    """The webhook with all that it can do, not started, and a NodePool with a taint."""
    with_definitions(plane)
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    template = {"spec": {"nodeClassRef": reference, "requirements": [], "taints": [TAINT]}}
    pool = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": GPU_POOL}}
    client.create(NODEPOOLS, {**pool, "spec": {"template": template}})
    flags = ["--on-demand-shares", "--image-registries", f"127.0.0.1:{images.port}"]
    flags += ["--image-registry-networks", "127.0.0.0/8", "--image-registry-ca", str(images.ca)]
    made = Hook(plane, tmp_path, *flags)
    try:
        yield made
    finally:
        made.close()
        client.delete(NODEPOOLS, GPU_POOL)


def wishes(image: str) -> dict[str, Document]:
    """Pods of whose stamps the policy can make none, some or all."""
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "nightly", "uid": "j", "controller": True}
    replicas = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "r", "controller": True}
    labels = {"app": "web"}

    def of(owner: Document, document: Document) -> Document:
        document["metadata"]["ownerReferences"] = [owner]
        return document

    def dovetail(**settings: str) -> dict[str, str]:
        return {f"dovetail.dev/{key.replace('_', '-')}": value for key, value in settings.items()}

    containers = [{"name": "c", "image": image}]
    zone = {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}]}
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [zone]}}}
    gpu = dovetail(nodepool=GPU_POOL, scheduler="enabled", legacy_labels="rewrite", os="linux", spread="zone")
    old = {"failure-domain.beta.kubernetes.io/region": "r"}
    return {
        "an architecture": pod(dovetail(arch="arm64")),
        "labels in a term of its own": pod(dovetail(os="linux", capacity_type="spot"), affinity=affinity),
        "a spread and a Job": of(job, pod(dovetail(spread="zone", protect_jobs="enabled"), labels)),
        "a NodePool with a taint": pod(dovetail(nodepool=GPU_POOL)),
        "a NodePool that it says itself": pod(
            dovetail(nodepool=GPU_POOL), nodeSelector={"karpenter.sh/nodepool": GPU_POOL}
        ),
        "a share": of(replicas, pod(dovetail(on_demand="30%", arch="arm64"))),
        "a share beside a capacity type": of(replicas, pod(dovetail(on_demand="30%", capacity_type="spot"))),
        "architectures of images": pod(dovetail(image_arch="stamp", os="linux"), containers=containers),
        "architectures of images beside its own": pod(
            dovetail(image_arch="stamp", arch="amd64"), containers=containers
        ),
        "our scheduler": pod(dovetail(scheduler="enabled")),
        "old labels": pod(
            dovetail(legacy_labels="rewrite", arch="amd64"), nodeSelector={"beta.kubernetes.io/arch": "arm64"}
        ),
        "everything": of(
            replicas,
            pod(
                {**gpu, **dovetail(on_demand="30%", image_arch="stamp")},
                labels,
                affinity=affinity,
                nodeSelector=old,
                containers=containers,
            ),
        ),
    }


def test_policy_and_webhook_together_do_what_the_webhook_does_alone(client: Client, hook: Hook, images: Hosts) -> None:
    defaulted(client, {})
    hook.start()
    pods = wishes(f"127.0.0.1:{images.port}/web/app:1")
    hook.create(ALONE, pods["architectures of images"]["metadata"]["annotations"], **_image(images))

    def made(namespace: str) -> dict[str, Document]:
        return {name: asked(client, namespace, document) for name, document in pods.items()}

    def records() -> set[str]:
        texts = [one["annotations"].get("dovetail.dev/stamped", "") for one in made(ALONE).values()]
        return {entry.partition("=")[0] for text in texts for entry in text.split("; ")} - {""}

    eventually(lambda: records() == STAMPS, lambda: f"the webhook makes no stamps but {sorted(records())}", seconds=40)
    alone, both = made(ALONE), made("policy-plain")
    assert {name: untold(one) for name, one in both.items()} == {name: untold(one) for name, one in alone.items()}
    for name, answer in both.items():
        assert asked(client, "policy-plain", as_new(pods[name], answer)) == answer, name


def _image(images: Hosts) -> Document:
    return {
        "containers": [{"name": "c", "image": f"127.0.0.1:{images.port}/web/app:1"}],
        "serviceAccountName": "default",
    }


def untold(answer: Document) -> Document:
    """A pod without the review that gave it its side, which is another one each time."""
    annotations = dict(answer["annotations"])
    ticket = annotations.pop("dovetail.dev/on-demand-ticket", "")
    return {**answer, "annotations": annotations, "ticket": ticket.rpartition(".")[0]}
