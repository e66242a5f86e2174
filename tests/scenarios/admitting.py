"""The words of rows about admission: what users create, what kubectl tells them then, and what the API server stored of it."""

import re
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from provisioner.apis import names
from provisioner.apis.plan import Plan
from provisioner.lab.harness.workload import Document, manifests
from tests.scenarios.grounds import DEFINITIONS
from tests.scenarios.scene import Scene
from tests.scenarios.steps import Step
from tests.support.provisioner import TEAM

DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
Wire = dict[str, Any]
Fact = Callable[[Wire], str]
"""What is wrong with a stored pod; "" for nothing."""
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_OURS = {names.STAMPED_ANNOTATION, names.ON_DEMAND_TICKET, names.DO_NOT_DISRUPT, names.POD_DELETION_COST}
_GUIDE = manifests() / "components" / "conversion" / "README.md"
_VERSIONS = {"Deployment": "apps/v1", "StatefulSet": "apps/v1", "ReplicaSet": "apps/v1", "DaemonSet": "apps/v1"}
_VERSIONS |= {"Job": "batch/v1", "CronJob": "batch/v1"}


# --- what users create --------------------------------------------------------------------------------------------------


def pod(
    name: str = "web",
    *,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    image: str | tuple[str, ...] = "none.invalid/none",
    tells: str = "",
    **spec: Any,
) -> Step:
    """`kubectl create` of a pod, which is admitted; kubectl prints a warning of ours with these words, or none at all.

    Args:
        name: of the pod, and its label `app`.
        annotations: of the pod.
        labels: beside `app`.
        image: of its container, or of each.
        tells: a part of the warning.
        spec: of the pod.
    """
    images = (image,) if isinstance(image, str) else image
    containers = [{"name": f"c{number}", "image": one} for number, one in enumerate(images)]

    def step(scene: Scene) -> None:
        scene.await_true(lambda: _account(scene), "the namespace has its service account")
        metadata: Document = {
            "name": name,
            "labels": {"app": name, **(labels or {})},
            "annotations": dict(annotations or {}),
        }
        document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers, **spec}}
        done = scene.kubectl("create", "-f", "-", document=document)
        assert done.returncode == 0, f"the pod was refused: {done.stderr}"
        warned = [one for one in done.stderr.splitlines() if "dovetail" in one]
        if tells:
            assert any(scene.text(tells) in one for one in warned), f"no warning with {tells!r}: {done.stderr!r}"
        else:
            assert not warned, done.stderr

    return step


def workload(
    kind: str,
    name: str = "web",
    *,
    replicas: int = 1,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    cpu: str = "100m",
    **spec: Any,
) -> Step:
    """`kubectl apply` of a workload; a CronJob is started by hand. The annotations, labels and `spec` are those of its pods."""
    container = {"name": "main", "image": "none.invalid/none", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"labels": {"app": name, **(labels or {})}, "annotations": dict(annotations or {})}
    template: Document = {"metadata": metadata, "spec": {"containers": [container], **spec}}
    body: Document = {"template": template}
    if kind in ("Job", "CronJob"):
        template["spec"] |= {"restartPolicy": "Never"}
        body |= {"parallelism": replicas, "completions": replicas}
    else:
        body |= {} if kind == "DaemonSet" else {"replicas": replicas}
        body["selector"] = {"matchLabels": {"app": name}}
    if kind == "StatefulSet":
        body |= {"serviceName": name, "podManagementPolicy": "Parallel"}
    if kind == "CronJob":
        body = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": body}}

    def step(scene: Scene) -> None:
        done = scene.apply({"apiVersion": _VERSIONS[kind], "kind": kind, "metadata": {"name": name}, "spec": body})
        assert done.returncode == 0, done.stderr
        if kind == "CronJob":
            done = scene.kubectl("create", "job", f"--from=cronjob/{name}", f"{name}-by-hand")
            assert done.returncode == 0, done.stderr
            scene.owns("Job.batch", f"{name}-by-hand")

    return step


def image(name: str, *architectures: str) -> Step:
    """The registry has an image for Linux on these architectures; it is `{registry}/{ns}/NAME:1`."""
    platforms = [("linux", one) for one in architectures]
    return lambda scene: scene.registry.index(scene.text(f"{{ns}}/{name}"), "1", *platforms)


def on_team(**more: Any) -> Document:
    """The spec of pods that only this row's nodes take."""
    return {
        "nodeSelector": {TEAM: "{pool}"},
        "tolerations": [{"key": TEAM, "operator": "Exists"}],
        "terminationGracePeriodSeconds": 1,
        **more,
    }


def as_admitted(
    scene: Scene,
    annotations: Mapping[str, str] | None = None,
    namespace: str = "",
    owners: Sequence[Document] = (),
) -> bytes:
    """A pod as the API server would store it; empty while it would store none, for want of a service account."""
    namespace = namespace or scene.name
    if not scene.wire(f"/api/v1/namespaces/{namespace}/serviceaccounts/default"):
        return b""
    metadata = {"name": "probe", "annotations": dict(annotations or {}), "ownerReferences": owners}
    made = {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "none.invalid/none"}]}}
    return scene.client.raw("POST", f"/api/v1/namespaces/{namespace}/pods", made, {"dryRun": "All"})


def _account(scene: Scene) -> bool:
    return bool(scene.wire("/api/v1/namespaces/{ns}/serviceaccounts/default"))


# --- what they see ------------------------------------------------------------------------------------------------------


def pods_of(scene: Scene, app: str) -> list[Wire]:
    """The row's pods of an app that are not ending, as they are stored."""
    found = scene.client.raw("GET", f"/api/v1/namespaces/{scene.name}/pods", query={"labelSelector": f"app={app}"})
    return [one for one in msgspec.json.decode(found)["items"] if "deletionTimestamp" not in one["metadata"]]


def stored(*facts: Fact, app: str = "web", count: int = 1) -> Step:
    """Until there are so many pods of the app; then all of this is true of each."""

    def step(scene: Scene) -> None:
        scene.await_true(lambda: len(pods_of(scene, app)) == count, f"{count} pods of {app} are there")
        _all_true(scene, facts, app)

    return step


def later(*facts: Fact, app: str = "web") -> Step:
    """Until all of this is true of the app's only pod."""

    def step(scene: Scene) -> None:
        def look() -> bool:
            found = pods_of(scene, app)
            return len(found) == 1 and not any(fact(found[0]) for fact in facts)

        try:
            scene.await_true(look, "the pod changes", 60.0)
        except AssertionError:
            _all_true(scene, facts, app)
            raise

    return step


def _all_true(scene: Scene, facts: tuple[Fact, ...], app: str) -> None:
    for one in pods_of(scene, app):
        wrong = [text for fact in facts if (text := fact(one))]
        assert not wrong, f"{one['metadata']['name']}: {'; '.join(wrong)}"


def has(value: object, *path: str | int) -> Fact:
    """What stands at a path of the pod; None for nothing."""

    def fact(found: Wire) -> str:
        there = at(found, *path)
        return "" if there == value else f"{'.'.join(map(str, path))} is {there!r}, not {value!r}"

    return fact


def at(found: Any, *path: str | int) -> Any:
    """The value at a path; None where there is none."""
    for part in path:
        try:
            found = found[part]
        except (KeyError, IndexError, TypeError):
            return None
    return found


def annotated(key: str, value: str | None) -> Fact:
    """An annotation; None for a pod without it."""
    return has(value, "metadata", "annotations", key)


def recorded(*entries: str) -> Fact:
    """What the pod says was stamped, entry by entry."""
    return annotated(names.STAMPED_ANNOTATION, "; ".join(entries))


def required(key: str, *values: str, terms: int = 1) -> Fact:
    """So many required terms, each of which asks for exactly these values of a label; of the pod's other terms nothing is said."""

    def fact(found: Wire) -> str:
        wanted = {"key": key, "operator": "In", "values": list(values)}
        there = [one for one in _terms(found) if wanted in one.get("matchExpressions", ())]
        return (
            "" if len(there) == terms else f"{len(there)} terms require {key} in {values}, not {terms}: {_terms(found)}"
        )

    return fact


def _terms(found: Wire) -> list[Wire]:
    terms: list[Wire] = at(found, "spec", "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms") or []
    return terms


def untouched(found: Wire) -> str:
    """Nothing was stamped."""
    keys = {key for key in found["metadata"].get("annotations", {}) if key in _OURS}
    said = [f"annotations {sorted(keys)}"] if keys else []
    said += [f"affinity {_terms(found)}"] if _terms(found) else []
    said += [key for key in ("topologySpreadConstraints", "schedulingGates") if found["spec"].get(key)]
    if found["spec"]["schedulerName"] == names.SCHEDULER_NAME:
        said.append("schedulerName")
    return f"it was stamped: {', '.join(said)}" if said else ""


def sides(app: str, *, on_demand: int, spot: int, fallback: bool = False, slack: int = 0) -> Step:
    """Until so many pods of an app run that are marked for each capacity type; each is on a node of its own type.

    Args:
        app: whose pods.
        on_demand: how many of them.
        spot: how many of them.
        fallback: no spot is to be had, so pods that are marked for it are on demand, too.
        slack: so many pods may have the other mark.
    """

    def step(scene: Scene) -> None:
        total = on_demand + spot
        scene.await_true(lambda: scene.running(app) == total and len(scene.pods(app)) == total, f"{total} pods run")
        marks: Counter[str] = Counter()
        for one in pods_of(scene, app):
            mark = one["metadata"]["labels"].get(names.ON_DEMAND_SHARE_LABEL, "none")
            node = scene.watching.nodes.get(one["spec"]["nodeName"])
            capacity = node.metadata.labels[names.CAPACITY_TYPE_LABEL] if node is not None else ""
            marks[mark] += 1
            want = names.CAPACITY_ON_DEMAND if fallback else mark
            assert capacity == want, f"{one['metadata']['name']} is marked {mark!r} and runs on {capacity!r}"
        assert abs(marks["on-demand"] - on_demand) <= slack, (
            f"{dict(marks)}, not {on_demand} on demand and {spot} on spot"
        )
        assert marks.total() - marks["on-demand"] == marks["spot"], dict(marks)

    return step


def marked(app: str, *, on_demand: int, spot: int) -> Step:
    """Until so many pods of an app are marked for each capacity type; they need not run."""
    wanted = {key: count for key, count in (("on-demand", on_demand), ("spot", spot)) if count}

    def marks(scene: Scene) -> Counter[str]:
        return Counter(
            one["metadata"]["labels"].get(names.ON_DEMAND_SHARE_LABEL, "none") for one in pods_of(scene, app)
        )

    return lambda scene: scene.await_true(lambda: marks(scene) == wanted, f"marks {wanted}", 60.0)


def planned(app: str, count: int) -> Step:
    """Until so many pods of an app have a place in the plan of a NodeClaim; how many each has is remembered."""

    def step(scene: Scene) -> None:
        def plans() -> Counter[str]:
            mine = {one.uid for one in scene.pods(app)}
            return Counter(
                claim.name
                for claim in scene.claims()
                if (text := claim.metadata.annotations.get(names.PLAN_ANNOTATION))
                for entry in msgspec.json.decode(text, type=Plan).pods
                for _ in mine.intersection(entry.uids)
            )

        scene.await_true(lambda: plans().total() == count, f"{count} pods of {app} are planned")
        scene.facts.planned[app] = plans()

    return step


def landed(scene: Scene) -> None:
    """Each NodeClaim's node has as many pods of each app as were planned for it; equal pods may change places."""
    homes = {one.status.node_name: one.name for one in scene.claims()}
    found = {app: Counter(homes[one.node_name] for one in scene.pods(app)) for app in scene.facts.planned}
    assert found == scene.facts.planned, f"planned: {scene.facts.planned}, found: {found}"


# --- other objects ------------------------------------------------------------------------------------------------------


def applied(document: Document) -> Step:
    """`kubectl apply`; the object is deleted at the end."""

    def step(scene: Scene) -> None:
        done = scene.apply(document)
        assert done.returncode == 0, done.stderr

    return step


def refused(document: Document, *words: str) -> Step:
    """`kubectl apply` fails with these words."""

    def step(scene: Scene) -> None:
        done = scene.apply(document)
        assert done.returncode != 0, "it was applied"
        missing = [one for one in words if scene.text(one) not in done.stderr]
        assert not missing, f"{missing} not in {done.stderr!r}"

    return step


def reviewed(document: Document, *words: str, denied: bool = False) -> Step:
    """`kubectl apply --dry-run=server` prints these words, once the webhook is asked; it is denied, or admitted."""

    def step(scene: Scene) -> None:
        said = ""

        def look() -> bool:
            nonlocal said
            done = scene.kubectl("apply", "--dry-run=server", "-f", "-", document=document)
            said = done.stderr
            return (done.returncode != 0) == denied and all(scene.text(one) in said for one in words)

        try:
            scene.await_true(look, f"kubectl says {words}", 60.0)
        except AssertionError as error:
            raise AssertionError(f"{error}: {said!r}") from None

    return step


def shows(path: str, *facts: Fact, seconds: float = 60.0) -> Step:
    """Until an object of the API is there and all of this is true of it."""

    def step(scene: Scene) -> None:
        def wrong() -> list[str]:
            found = scene.wire(path)
            return [text for fact in facts if (text := fact(found))] if found else ["it is not there"]

        try:
            scene.await_true(lambda: not wrong(), path, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}: {wrong()}") from None

    return step


def guide_commands() -> list[list[str]]:
    """The arguments of kubectl in the guide's check before the component is added: who manages the definitions, where Karpenter leads."""
    (block,) = re.findall(r"Before you add.*?```sh\n(.*?)```", _GUIDE.read_text(), re.DOTALL)
    return [shlex.split(one)[1:] for one in block.replace("\\\n", "").splitlines()]


def no_bundle(*reasons: str) -> Step:
    """The webhook's log has these reasons, and no definition of old versions has a CA bundle."""

    def step(scene: Scene) -> None:
        log = scene.runtime.cluster.log("webhook")
        scene.await_true(
            lambda: all(one in log.read_text() for one in reasons), f"the webhook's log says: {reasons}", 90.0
        )
        for name in DEFINITIONS:
            found = scene.wire(f"{DEFINITION}/{name}")
            assert at(found, "spec", "conversion", "strategy") == "Webhook", found["spec"]["conversion"]
            assert at(found, "spec", "conversion", "webhook", "clientConfig", "caBundle") is None, name

    return step
