"""The words of the rows: what is applied, what users do, and what they see. Each makes a step; a row is a list of them."""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import condition, is_true
from provisioner.apis.pods import is_daemon
from provisioner.lab.harness import figures
from provisioner.lab.harness.workload import Document
from tests.scenarios.scene import SECONDS, Scene, settled_problem
from tests.support.eventually import eventually
from tests.support.provisioner import TEAM

Step = Callable[[Scene], object]
Sample = tuple[str, Mapping[str, str]]
"""Name and labels of a series of the metrics."""

ON_DEMAND = {"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": [names.CAPACITY_ON_DEMAND]}
SPOT = {"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": [names.CAPACITY_SPOT]}
ALL: Mapping[str, Any] = {"budgets": [{"nodes": "100%"}]}
NEVER: Mapping[str, Any] = {**ALL, "consolidateAfter": "Never"}
"""Nothing is consolidated; drift goes its way."""
EMPTY: Mapping[str, Any] = {**ALL, "consolidationPolicy": "WhenEmpty", "consolidateAfter": "0s"}
TIGHT: Mapping[str, Any] = {**ALL, "consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s"}

GENERATION = "dovetail.example/generation"
"""The label that `relabel` writes into a template."""
PAUSE_SECONDS = 1.0
"""In which a pause is heeded."""
HOLDS_SECONDS = 40.0
"""Longer than a node is left alone after the last change (15 s) and two passes of consolidation."""


# --- what is applied ------------------------------------------------------------------------------------------------


def pool(suffix: str = "", **spec: Any) -> Step:
    """A NodePool and its class; nodes of 4 CPUs unless told otherwise. See `Plot.pool`."""

    def step(scene: Scene) -> None:
        scene.pool(suffix, **spec)

    return step


def deploy(name: str, replicas: int, *, cpu: str = "3", pool: str = "", **template: Any) -> Step:
    """A Deployment whose pods run in this row's pools, or in the one of that suffix."""

    def step(scene: Scene) -> None:
        scene.deploy(name, replicas, cpu=cpu, pool=scene.name + pool if pool else "", **template)

    return step


def daemons(name: str = "agent", **template: Any) -> Step:
    """A DaemonSet with a small pod on every node of this row."""
    return lambda scene: scene.daemonset(name, **template)


def pdb(app: str, **spec: Any) -> Step:
    """A PodDisruptionBudget of an app's pods, named as the app unless `name` says otherwise."""
    name = spec.pop("name", app)

    def step(scene: Scene) -> None:
        scene.put(
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": name},
                "spec": {"selector": {"matchLabels": {"app": app}}, **spec},
            }
        )

    return step


def surging(app: str, **rolling: Any) -> Step:
    """The Deployment asks for its new pod first; `rolling` are fields of its rollingUpdate."""
    strategy = {"type": "RollingUpdate", "rollingUpdate": rolling or {"maxSurge": 1, "maxUnavailable": 0}}
    annotations = {names.SURGE: "true"}
    return change("Deployment", app, {"metadata": {"annotations": annotations}, "spec": {"strategy": strategy}})


def put(document: Document) -> Step:
    """Any object."""
    return lambda scene: scene.put(document)


def settled(nodes: int, pods: int = 0, *, claims: int | None = None) -> Step:
    """Until so many nodes are initialized and so many pods run (daemons apart); remembers them all."""

    def step(scene: Scene) -> None:
        def is_settled() -> bool:
            found = scene.claims()
            return (
                len(found) == (nodes if claims is None else claims)
                and not settled_problem(scene, found)
                and scene.running() == pods
            )

        scene.await_true(is_settled, f"{nodes} nodes are initialized and {pods} pods run")
        scene.facts.claims = {one.name: one for one in scene.claims()}
        scene.facts.nodes = {one.metadata.name: one for one in scene.nodes()}
        scene.facts.pods = {one.uid: one for one in scene.pods()}

    return step


# --- what users do ----------------------------------------------------------------------------------------------------


def scale(app: str, replicas: int) -> Step:
    """kubectl scale deployment."""
    return lambda scene: scene.scale(app, replicas)


def change(kind: str, name: str, body: Document, subresource: str = "") -> Step:
    """kubectl patch --type=merge."""
    return lambda scene: scene.change(kind, name, body, subresource)


def change_pool(suffix: str = "", **spec: Any) -> Step:
    """kubectl patch nodepool: merged into its spec."""
    return lambda scene: scene.change("NodePool", scene.name + suffix, {"spec": spec})


def change_template(suffix: str = "", *, metadata: Document | None = None, **spec: Any) -> Step:
    """kubectl patch nodepool: merged into its template."""
    return change_pool(suffix, template={"metadata": metadata or {}, "spec": spec})


def requirement(key: str, *values: str) -> Step:
    """One more requirement, or another in place of one, in the NodePool's template."""

    def step(scene: Scene) -> None:
        spec = scene.node_pool(scene.name).spec.template.spec
        kept = [
            {"key": one.key, "operator": str(one.operator), "values": list(one.values or ())}
            for one in spec.requirements
            if one.key != key
        ]
        wanted = [*kept, {"key": key, "operator": "In", "values": list(values)}]
        scene.change("NodePool", scene.name, {"spec": {"template": {"spec": {"requirements": wanted}}}})

    return step


def relabel(value: str = "two", suffix: str = "") -> Step:
    """Another label in the template: every node is drifted."""
    return change_template(suffix, metadata={"labels": {GENERATION: value}})


def remove(kind: str, name: str, grace: int | None = None) -> Step:
    """kubectl delete."""
    return lambda scene: scene.remove(kind, name, grace)


def remove_claims(count: int = 1) -> Step:
    """kubectl delete nodeclaim: the first ones by name."""

    def step(scene: Scene) -> None:
        for name in sorted(scene.facts.claims)[:count]:
            scene.remove("NodeClaim", name)

    return step


def remove_node() -> Step:
    """kubectl delete node, without waiting: the first one by name."""
    return lambda scene: scene.remove("Node", min(scene.facts.nodes))


def on_nodes(body: Document, count: int | None = None, subresource: str = "") -> Step:
    """A patch of the row's first Nodes by name; of all without a count."""

    def step(scene: Scene) -> None:
        for name in sorted(scene.facts.nodes)[:count]:
            scene.change("Node", name, body, subresource)

    return step


def on_claims(body: Document) -> Step:
    """A patch of all NodeClaims of the row."""

    def step(scene: Scene) -> None:
        for name in sorted(scene.facts.claims):
            scene.change("NodeClaim", name, body)

    return step


def on_pods(app: str, body: Document, count: int | None = None) -> Step:
    """A patch of an app's first pods by name; of all without a count."""

    def step(scene: Scene) -> None:
        for one in sorted(scene.pods(app), key=lambda one: one.name)[:count]:
            scene.change("Pod", one.name, body)

    return step


def guard(app: str, least: int) -> Step:
    """From now on never fewer ready pods of the app; asked at the end."""
    return lambda scene: scene.facts.guards.append(scene.watching.guard(scene.name, app, least))


def unguarded(scene: Scene) -> None:
    """What was guarded so far may go."""
    scene.verify()
    scene.facts.guards.clear()


def may_orphan(scene: Scene) -> None:
    """This row's pods may be on a node that vanishes."""
    scene.facts.allows_orphans = True


def may_force(scene: Scene) -> None:
    """This row's pods may be deleted without an eviction."""
    scene.facts.allows_force = True


def paused_by(patch: Step) -> Step:
    """A pause, and when it was acknowledged."""

    def step(scene: Scene) -> None:
        patch(scene)
        scene.facts.paused = datetime.now(tz=UTC)

    return step


def pause_pool(suffix: str = "") -> Step:
    """kubectl annotate nodepool dovetail.dev/paused=true."""
    return paused_by(_annotate_pause(suffix, "true"))


def resume_pool(suffix: str = "") -> Step:
    """The annotation is taken off."""
    return _annotate_pause(suffix, None)


def _annotate_pause(suffix: str, value: str | None) -> Step:
    return change("NodePool", f"{{pool}}{suffix}", {"metadata": {"annotations": {names.PAUSED: value}}})


# --- what users see ----------------------------------------------------------------------------------------------------


def becomes(nodes: int, pods: int, *, new: bool | None = None, seconds: float = SECONDS) -> Step:
    """Until so many nodes are left, all at rest, and so many pods run.

    Args:
        nodes: how many.
        pods: how many, daemons apart.
        new: whether all of them are new since `settled`, or none is; None does not ask.
        seconds: for how long to wait.
    """

    def is_so(scene: Scene) -> bool:
        found = scene.claims()
        fresh = [one.name not in scene.facts.claims for one in found]
        return (
            len(found) == nodes
            and not settled_problem(scene, found)
            and len(scene.nodes()) >= nodes
            and scene.running() == pods
            and (new is None or all(one is new for one in fresh))
        )

    words = {True: "new ", False: "of the old ", None: ""}[new]
    return lambda scene: scene.await_true(lambda: is_so(scene), f"{nodes} {words}nodes and {pods} pods", seconds)


def renewed(pods: int, *, seconds: float = SECONDS) -> Step:
    """Until every node is new, however many there are, all at rest, and so many pods run."""

    def is_so(scene: Scene) -> bool:
        found = scene.claims()
        fresh = found and not {one.name for one in found} & set(scene.facts.claims)
        return bool(fresh) and not settled_problem(scene, found) and scene.running() == pods

    return lambda scene: scene.await_true(lambda: is_so(scene), f"only new nodes and {pods} pods", seconds)


def holds(seconds: float = HOLDS_SECONDS) -> Step:
    """For so long no node is disrupted, bought or lost, and every pod stays."""

    def step(scene: Scene) -> None:
        def wrong() -> str:
            found = scene.claims()
            if {one.name for one in found} != set(scene.facts.claims):
                return f"other nodes: {sorted(one.name for one in found)}, not {sorted(scene.facts.claims)}"
            return settled_problem(scene, found)

        scene.throughout(seconds, wrong)

    return step


def event(reason: str, message: str = "", *, kind: str = "NodeClaim", of: str = "", seconds: float = SECONDS) -> Step:
    """An event with these words in its message, on one of the row's objects of that kind.

    Args:
        reason: whole.
        message: a part of it.
        kind: of the object that it is about.
        of: its name; one that was there at `settled`, the pool or a pod of the row without.
        seconds: for how long to wait.
    """

    def step(scene: Scene) -> None:
        wanted = scene.text(message)

        def there() -> bool:
            if of:
                about: Iterable[str] = [scene.text(of)]
            elif kind == "NodeClaim":
                about = {*scene.facts.claims, *(one.name for one in scene.claims())}
            elif kind == "Node":
                about = {*scene.facts.nodes, *(one.metadata.name for one in scene.nodes())}
            elif kind == "NodePool":
                about = scene._pools
            else:
                about = {one.name for one in [*scene.every_pod(), *scene.facts.pods.values()]}
            return any(wanted in one.message for one in scene.events(reason, kind, about))

        scene.await_true(there, f"{kind} has the event {reason} with {wanted!r}", seconds)

    return step


def no_event(reason: str, *, kind: str = "NodeClaim") -> Step:
    """There is no such event about an object of this row."""

    def step(scene: Scene) -> None:
        about = {*scene.facts.claims, *scene.facts.nodes, *(one.name for one in scene.facts.pods.values())}
        found = [one.message for one in scene.events(reason, kind, about)]
        assert not found, found

    return step


def claims_say(kind: str, status: str, reason: str = "", message: str = "", *, count: int | None = None) -> Step:
    """Until a condition of the claims is as told: of all of them, or of `count`."""

    def step(scene: Scene) -> None:
        def says(one: NodeClaim) -> bool:
            found = condition(one.status.conditions, kind)
            return (
                found is not None
                and found.status == status
                and (not reason or found.reason == reason)
                and scene.text(message) in found.message
            )

        def so() -> bool:
            every = scene.claims()
            return sum(map(says, every)) == (len(every) if count is None else count) and bool(every)

        scene.await_true(so, f"{kind}={status} {reason} {message} on {'all' if count is None else count}")

    return step


def claims_lack(kind: str) -> Step:
    """Until no claim has the condition."""
    return lambda scene: scene.await_true(
        lambda: all(condition(one.status.conditions, kind) is None for one in scene.claims()), f"{kind} is gone"
    )


def pool_says(kind: str, status: str, reason: str = "", message: str = "", suffix: str = "") -> Step:
    """Until a condition of the NodePool is as told."""

    def step(scene: Scene) -> None:
        def so() -> bool:
            found = condition(scene.node_pool(scene.name + suffix).status.conditions, kind)
            return (
                found is not None
                and found.status == status
                and (not reason or found.reason == reason)
                and scene.text(message) in found.message
            )

        scene.await_true(so, f"NodePool {kind}={status} {reason} {message}")

    return step


def at_most_disrupted(count: int, *suffixes: str, least: int = 1) -> Step:
    """Never more nodes of these NodePools together at once, and `least` at some time."""

    def step(scene: Scene) -> None:
        most = scene.watching.most_disrupted(*(scene.name + suffix for suffix in suffixes or ("",)))
        assert least <= most <= count, f"{most} nodes were disrupted at once, not {least} to {count}"

    return step


def sizes(*cpus: int) -> Step:
    """The nodes have so many CPUs, in order of size."""

    def step(scene: Scene) -> None:
        found = sorted(int(one.metadata.labels[names.KWOK_INSTANCE_CPU_LABEL]) for one in scene.claims())
        assert found == sorted(cpus), f"nodes of {found} CPUs, not {sorted(cpus)}"

    return step


def labelled(key: str, *values: str) -> Step:
    """The nodes' values of a label, in order."""

    def step(scene: Scene) -> None:
        found = sorted(one.metadata.labels.get(key, "") for one in scene.nodes())
        wanted = sorted(map(scene.text, values))
        assert found == wanted, f"{key}: {found}, not {wanted}"

    return step


def evicted(*apps: str, count: int | None = None) -> Step:
    """The Eviction API let so many pods of each app go; none where `count` is 0."""

    def step(scene: Scene) -> None:
        for app in apps:
            found = [name for name in scene.log.evictions(scene.name) if name == app or name.startswith(f"{app}-")]
            assert len(found) == count if count is not None else found, f"evicted of {app}: {found}"

    return step


def none_evicted_since_the_pause(seconds: float) -> Step:
    """Until so many seconds are over: no eviction later than a second after the pause, no node bought or lost."""

    def step(scene: Scene) -> None:
        before = {one.name for one in scene.claims()}
        scene.throughout(
            seconds, lambda: "" if {one.name for one in scene.claims()} == before else "nodes were bought or lost"
        )
        last, paused = scene.log.last_eviction(scene.name), scene.facts.paused
        assert last is not None
        assert paused is not None
        late = (last - paused).total_seconds()
        bound = PAUSE_SECONDS if late <= PAUSE_SECONDS else PAUSE_SECONDS * scene.runtime.slowness()
        assert late <= bound, f"a pod was evicted {late:.1f} s after the pause, not within {bound:.1f} s"

    return step


def none_evicted(scene: Scene) -> None:
    """Nobody was evicted."""
    assert not scene.log.evictions(scene.name)


def spread(app: str, key: str, skew: int, *, domains: int | None = None) -> Step:
    """The pods of an app are spread over the nodes' values of a label within so much skew, over so many of them."""

    def step(scene: Scene) -> None:
        of_node = {one.metadata.name: one.metadata.labels.get(key, "") for one in scene.nodes()}
        counts = dict.fromkeys(of_node.values(), 0)
        for one in scene.pods(app):
            counts[of_node[one.node_name]] += 1
        assert max(counts.values()) - min(counts.values()) <= skew, counts
        assert domains is None or len(counts) == domains, counts

    return step


def apart(app: str) -> Step:
    """No two pods of an app share a node."""

    def step(scene: Scene) -> None:
        homes = [one.node_name for one in scene.pods(app)]
        assert len(set(homes)) == len(homes), homes

    return step


def gone(*, seconds: float = SECONDS) -> Step:
    """Until neither claims nor Nodes are left."""
    return lambda scene: scene.await_true(
        lambda: not scene.claims() and not scene.nodes(), "no node and no claim is left", seconds
    )


def first_gone(*, seconds: float = SECONDS) -> Step:
    """Until what `remove_claims` or `remove_node` was about is gone: claim and Node."""

    def step(scene: Scene) -> None:
        def is_gone() -> bool:
            name = min(scene.facts.claims)
            node = scene.facts.claims[name].status.node_name
            return scene.watching.claims.get(name) is None and scene.watching.nodes.get(node) is None

        scene.await_true(is_gone, "the node and its claim are gone", seconds)

    return step


def stays(seconds: float, *, kind: str = "NodeClaim") -> Step:
    """The first one by name is still there for so long, deleted as it may be."""

    def step(scene: Scene) -> None:
        name = min(scene.facts.claims)

        def wrong() -> str:
            return "" if scene.watching.claims.get(name) is not None else f"{kind} {name} is gone"

        scene.throughout(seconds, wrong)

    return step


def pods_run(count: int, app: str = "", *, seconds: float = SECONDS) -> Step:
    """Until so many pods run."""
    return lambda scene: scene.await_true(
        lambda: scene.running(app) == count, f"{count} pods of {app or 'all'} run", seconds
    )


def pod_stays(app: str) -> Step:
    """The app's pods are those that `settled` saw."""

    def step(scene: Scene) -> None:
        old = {one.uid for one in scene.facts.pods.values() if one.labels.get("app") == app}
        assert {one.uid for one in scene.every_pod(app)} == old, "the pod was replaced"

    return step


def sample(name: str, **labels: str) -> Sample:
    """A series of the metrics, of this row's pool as `{pool}`."""
    return name, labels


def counted(*samples: Sample) -> Step:
    """Until each of these series is above 0."""

    def step(scene: Scene) -> None:
        def lacking() -> list[str]:
            page = scene.runtime.metrics()
            return [_series(scene, *one) for one in samples if not _is_above_nought(scene, page, *one)]

        eventually(lambda: not lacking(), lambda: f"above 0: {', '.join(lacking())}", SECONDS, 1.0)

    return step


def _is_above_nought(scene: Scene, page: str, name: str, labels: Mapping[str, str]) -> bool:
    wanted = {key: scene.text(value) for key, value in labels.items()}
    return any(wanted.items() <= found.items() and value > 0 for found, value in figures.series(page, name))


def _series(scene: Scene, name: str, labels: Mapping[str, str]) -> str:
    return f"{name}{{{','.join(f'{key}={scene.text(value)}' for key, value in labels.items())}}}"


def disrupted_for(reason: str, pool: str = "{pool}") -> Sample:
    """NodeClaims of this row were disrupted for it."""
    return sample("karpenter_nodeclaims_disrupted_total", reason=reason, nodepool=pool)


def begun(decision: str, reason: str, kind: str = "") -> tuple[Sample, Sample]:
    """A method was asked, and a node of this row was disrupted by its answer."""
    prefix, labels = "karpenter_voluntary_disruption", {"reason": reason, "consolidation_type": kind}
    return (
        sample(f"{prefix}_decisions_by_nodepool_total", decision=decision, nodepool="{pool}", **labels),
        sample(f"{prefix}_decision_evaluation_duration_seconds_count", **labels),
    )


LIVED: tuple[Sample, ...] = (
    *(
        sample(f"karpenter_{name}", nodepool="{pool}")
        for name in (
            "nodeclaims_terminated_total",
            "nodeclaims_termination_duration_seconds_count",
            "nodes_created_total",
            "nodes_drained_total",
            "nodes_terminated_total",
            "nodes_termination_duration_seconds_count",
            "nodes_lifetime_duration_seconds_count",
        )
    ),
    sample("karpenter_nodeclaims_created_total", reason="provisioned", nodepool="{pool}"),
)
"""What a node leaves behind that was bought for pods, drained and terminated."""


def wait(what: str, look: Callable[[Scene], object], seconds: float = SECONDS) -> Step:
    """Until something that has no word of its own is so."""
    return lambda scene: scene.await_true(lambda: look(scene), what, seconds)


def check(look: Callable[[Scene], object], what: str) -> Step:
    """Something that has no word of its own is so now."""

    def step(scene: Scene) -> None:
        assert look(scene), scene.text(what)

    return step


def together(*steps: Step) -> Step:
    """Several as one."""

    def step(scene: Scene) -> None:
        for one in steps:
            one(scene)

    return step


# --- objects ------------------------------------------------------------------------------------------------------------


def over(key: str, app: str, skew: int = 1, **more: Any) -> list[dict[str, Any]]:
    """A hard topology spread of an app's pods."""
    return [
        {
            "maxSkew": skew,
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": app}},
            **more,
        }
    ]


def alone(app: str) -> dict[str, Any]:
    """A hard anti-affinity of an app's pods by hostname; as a pod's affinity."""
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": names.HOSTNAME_LABEL}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def bare_pod(name: str, *, cpu: str = "600m", annotations: Mapping[str, str] | None = None, **spec: Any) -> Step:
    """A pod that nobody makes again, for this row's nodes."""

    def step(scene: Scene) -> None:
        container = {"name": "main", "image": "none.invalid/none", "resources": {"requests": {"cpu": cpu}}}
        scene.put(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "labels": {"app": name}, "annotations": dict(annotations or {})},
                "spec": {
                    "containers": [container],
                    "nodeSelector": {TEAM: scene.name},
                    "tolerations": [{"key": TEAM, "operator": "Exists"}],
                    "terminationGracePeriodSeconds": 1,
                    **spec,
                },
            }
        )

    return step


def own_claim(name: str = "standalone", *, cpu: str = "4", **spec: Any) -> Step:
    """A NodeClaim that no NodePool made, of this row's class."""

    def step(scene: Scene) -> None:
        scene.put(
            {
                "apiVersion": "karpenter.sh/v1",
                "kind": "NodeClaim",
                "metadata": {"name": f"{scene.name}-{name}", "labels": {TEAM: scene.name}},
                "spec": {
                    "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": scene.name},
                    "requirements": [
                        {"key": names.KWOK_INSTANCE_CPU_LABEL, "operator": "In", "values": [cpu]},
                        {"key": names.ARCH_LABEL, "operator": "In", "values": ["amd64"]},
                        {"key": names.OS_LABEL, "operator": "In", "values": ["linux"]},
                    ],
                    "resources": {"requests": {"cpu": "1"}},
                    "expireAfter": "Never",
                    **spec,
                },
            }
        )

    return step


def is_ready(node: Node | None) -> bool:
    """Whether a Node is there and Ready."""
    return node is not None and is_true(node.status.conditions, names.READY)


def not_ready(count: int = 1, *, status: str = "False", since: timedelta = timedelta(minutes=20)) -> Step:
    """The first Nodes by name have not been Ready for so long; `status` is False or Unknown."""

    def step(scene: Scene) -> None:
        moment = (datetime.now(tz=UTC) - since).strftime("%Y-%m-%dT%H:%M:%SZ")
        body = {
            "status": {
                "conditions": [
                    {
                        "type": "Ready",
                        "status": status,
                        "reason": "KubeletNotReady",
                        "message": "not ready by label",
                        "lastHeartbeatTime": moment,
                        "lastTransitionTime": moment,
                    }
                ]
            }
        }
        broken, label = sorted(scene.facts.nodes)[:count], "unknown" if status == "Unknown" else "true"
        for name in broken:
            scene.change("Node", name, {"metadata": {"labels": {"kwok.dovetail.dev/not-ready": label}}})
        scene.await_true(lambda: not any(map(is_ready, map(scene.watching.nodes.get, broken))), "they are not ready")
        for name in broken:
            path = f"/api/v1/nodes/{name}/status"
            scene.client.raw("PATCH", path, body, {}, content_type="application/strategic-merge-patch+json")

    return step


def daemons_run(count: int) -> Step:
    """Until so many pods of DaemonSets run."""
    return wait(
        f"{count} daemons run", lambda scene: sum(is_daemon(one) and one.ready for one in scene.pods()) == count
    )
