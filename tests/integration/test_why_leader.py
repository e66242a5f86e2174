"""`dovetail why` through the leader on a real control plane: tokens of ServiceAccounts, reviews by the API server, a port-forward through it.

Dev clusters have no kubelet, so a second kwok plays that of one Node, and ends port-forwards to the leader's pod at the leader's port.
"""

import http.client
import json
import os
import re
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from playwright.sync_api import expect

from provisioner.apis import names
from provisioner.apis.reports import LEASE_NAME
from provisioner.cli.ui.command import command as ui
from provisioner.cli.why.command import command
from provisioner.kube.client import Client
from provisioner.kube.config import connect
from provisioner.kube.errors import ApiError, NotFound
from provisioner.kube.forwarding import open_port
from provisioner.kube.resources import LEASES, NODES, PODS
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.support.clock import SystemClock
from provisioner.values.errors import UserError
from provisioner.why.access import TOKEN_NEEDED
from tests.support.browser import Tab, chromium
from tests.support.eventually import PATIENCE, eventually
from tests.support.kubeconfigs import user_kubeconfig
from tests.support.ports import free_port
from tests.support.provisioner import SECONDS, Plot, start_child

pytestmark = pytest.mark.plane

SYSTEM, OTHERS = "dovetail-system", "why-others"
FIRST, SECOND, KUBELET, LOOKER = "why-first", "why-second", "why-kubelet", "why-ui"
NODE, OWN = "why-node", "why.dovetail.dev/kubelet"
RBAC = "rbac.authorization.k8s.io"
LEADER_POD = os.uname().nodename


def holder(client: Client) -> str:
    try:
        lease = client.get(LEASES, LEASE_NAME, SYSTEM)
    except NotFound:
        return ""
    return (lease.spec.holder_identity or "") if names.WHY_PORT_ANNOTATION in lease.metadata.annotations else ""


def apply(plane: DevCluster, *documents: dict[str, Any]) -> None:
    plane.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(documents))


@dataclass(frozen=True)
class Replicas:
    """Two provisioners: where each answers, and who leads."""

    leader: int
    standby: int
    identity: str


@pytest.fixture(scope="module")
def replicas(plane: DevCluster, client: Client) -> Iterator[Replicas]:
    ports = free_port(), free_port()
    try:
        start_child(plane, FIRST, f"--why-port={ports[0]}")
        eventually(lambda: status_of(ports[0]) == 401, "the first leads", SECONDS)
        identity = holder(client)
        start_child(plane, SECOND, f"--why-port={ports[1]}")
        eventually(lambda: status_of(ports[1]) == 503, "the second answers", SECONDS)
        yield Replicas(*ports, identity)
    finally:
        for name in (SECOND, FIRST):
            plane.stop(name)


@pytest.fixture(scope="module")
def forwarded(
    plane: DevCluster, client: Client, replicas: Replicas, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """A pod named as the leader's host, on a Node whose kubelet forwards the leader's port."""
    port, configuration = free_port(), tmp_path_factory.mktemp("kwok") / "forward.yaml"
    forward = {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "ClusterPortForward",
        "metadata": {"name": "why"},
        "spec": {
            "forwards": [{"ports": [replicas.leader], "target": {"port": replicas.leader, "address": "127.0.0.1"}}]
        },
    }
    stages = (plane.dir / "kwok-stages.yaml").read_text()
    handlers = {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokConfiguration",
        "options": {"enableDebuggingHandlers": True},
    }
    configuration.write_text(f"{stages}\n---\n{yaml.safe_dump_all([forward, handlers])}")
    plane.start_program(
        KUBELET,
        [
            str(plane.bin("kwok")),
            f"--kubeconfig={plane.kubeconfig}",
            f"--config={configuration}",
            f"--manage-nodes-with-annotation-selector={OWN}=yes",
            "--node-ip=127.0.0.1",
            f"--node-port={port}",
            f"--server-address=127.0.0.1:{port}",
        ],
    )
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": NODE, "annotations": {OWN: "yes"}},
        "spec": {"taints": [{"key": OWN, "effect": "NoSchedule"}]},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": LEADER_POD, "namespace": SYSTEM},
        "spec": {
            "nodeName": NODE,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "provisioner", "image": "dovetail"}],
        },
    }
    apply(plane, node, pod)
    try:
        eventually(lambda: client.get(PODS, LEADER_POD, SYSTEM).phase == "Running", "the leader's pod runs", 30.0)
        yield
    finally:
        client.delete(PODS, LEADER_POD, SYSTEM, grace_seconds=0)
        client.delete(NODES, NODE)
        plane.stop(KUBELET)


@dataclass(frozen=True)
class Ground:
    """Pods of two namespaces on one node, and one that waits."""

    plot: Plot
    node: str
    mine: str
    theirs: str
    waiting: str


@pytest.fixture(scope="module")
def ground(client: Client, replicas: Replicas) -> Iterator[Ground]:
    plot, theirs = Plot(client), Plot(client)
    plot.pool(cpu=16, limits={"cpu": "16"}, disruption={"consolidateAfter": "Never"})
    theirs._pools = plot._pools
    plot.deploy("web", 1, cpu="1")
    plot.await_running(1)
    theirs.deploy("secret", 1, cpu="1")
    theirs.protect("secret")
    theirs.await_running(1)
    plot.deploy("large", 1, cpu="15")

    def judged() -> bool:
        return any(one.source.component == "karpenter" for one in plot.events("FailedScheduling", "Pod"))

    eventually(judged, "the large one was judged", SECONDS)
    (mine,), (other,), (waiting,) = plot.pods("web"), theirs.pods("secret"), plot.pods("large")
    assert mine.node_name == other.node_name
    yield Ground(plot, mine.node_name, mine.key, other.key, waiting.key)
    theirs.unprotect("secret")
    theirs._pools = []
    theirs.clear()
    plot.clear()


def role(namespace: str, name: str, rules: list[dict[str, Any]], account: str, of: str) -> list[dict[str, Any]]:
    """A Role, or a ClusterRole where no namespace is named, and its binding."""
    kind = "Role" if namespace else "ClusterRole"
    where = {"namespace": namespace} if namespace else {}
    return [
        {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": {"name": name, **where}, "rules": rules},
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": f"{kind}Binding",
            "metadata": {"name": name, **where},
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": of}],
        },
    ]


PODS_RULE = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}


@dataclass(frozen=True)
class Users:
    """Tokens, and kubeconfigs with them."""

    tenant: str
    nobody: str
    auditor: str
    tenants: Path
    nobodys: Path


@pytest.fixture(scope="module")
def users(
    plane: DevCluster,
    client: Client,
    replicas: Replicas,
    ground: Ground,
    tmp_path_factory: pytest.TempPathFactory,
) -> Users:
    """`tenant` reads pods of one namespace, one node, and reaches the leader as the example says; `auditor` gets rights, `nobody` has none."""
    space, elsewhere = ground.plot.name, ground.theirs.partition("/")[0]
    text = (Path(__file__).parents[2] / "manifests/examples/why-role.yaml").read_text()
    assert text.count("tenants") == 4, "in the comment, a name, an expression and a message"
    mine = text.replace("tenants", f"system:serviceaccounts:{space}").replace("dovetail-provisioner-", LEADER_POD)
    nodes = [{"apiGroups": [""], "resources": ["nodes"], "resourceNames": [ground.node], "verbs": ["get"]}]
    homes = {"tenant": space, "nobody": elsewhere, "auditor": elsewhere}
    accounts = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": home}}
        for name, home in homes.items()
    ]
    apply(
        plane,
        *accounts,
        *role(space, "why-tenant", [PODS_RULE], "tenant", space),
        *role("", f"why-tenant-{space}", nodes, "tenant", space),
        *yaml.safe_load_all(mine),
    )
    folder = tmp_path_factory.mktemp("users")
    tokens = {name: token_of(client, home, name) for name, home in homes.items()}
    paths = {name: kubeconfig(plane, folder / name, token) for name, token in tokens.items()}
    for path in (f"/why/pod/{ground.waiting}", f"/why/node/{ground.node}"):
        eventually(lambda: ask(replicas.leader, path, tokens["tenant"])[0] == 200, "the right is seen", SECONDS, 2.0)  # noqa: B023
    for verb, resource in (("get", "leases"), ("get", "pods"), ("create", "pods")):
        eventually(lambda: may(plane, paths["tenant"], verb, resource), "the right is seen", SECONDS)  # noqa: B023
    return Users(tokens["tenant"], tokens["nobody"], tokens["auditor"], paths["tenant"], paths["nobody"])


def may(plane: DevCluster, config: Path, verb: str, resource: str) -> bool:
    """Whether the API server knows by now that somebody may read the leader's Lease, or forward ports of its pod."""
    what = (f"pods/{LEADER_POD}", "--subresource=portforward") if resource == "pods" else (f"leases/{LEASE_NAME}",)
    asked = ("--kubeconfig", str(config), "auth", "can-i", verb, *what, "-n", SYSTEM)
    return plane.kubectl(*asked, check=False).strip() == "yes"


def token_of(client: Client, namespace: str, name: str) -> str:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    found: str = json.loads(client.raw("POST", path, body))["status"]["token"]
    return found


def kubeconfig(plane: DevCluster, path: Path, token: str) -> Path:
    document = yaml.safe_load(plane.kubeconfig.read_text())
    (user,) = document["users"]
    user["user"] = {"token": token}
    path.write_text(yaml.safe_dump(document))
    return path


def ask(port: int, path: str, token: str = "", **headers: str) -> tuple[int, dict[str, Any]]:
    """One request to a replica's loopback, as a port-forward ends there; again where somebody asked too often, when the answer says."""
    sent = {"Authorization": f"Bearer {token}"} if token else {}
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            connection.request("GET", path, headers={**sent, **headers})
            answer = connection.getresponse()
            found: dict[str, Any] = json.loads(answer.read())
        finally:
            connection.close()
        if answer.status != 429:
            return answer.status, found
        time.sleep(int(answer.headers["Retry-After"]))


def status_of(port: int) -> int:
    """What a question without a token is answered; 0 while nobody answers."""
    try:
        return ask(port, "/why/node/a")[0]
    except OSError:
        return 0


def test_the_leader_answers_and_the_other_replica_names_it(replicas: Replicas) -> None:
    status, found = ask(replicas.leader, "/why/node/a")
    assert (status, found["error"]) == (401, TOKEN_NEEDED)
    named = eventually(
        lambda: ask(replicas.standby, "/why/node/a", "whatever")[1].get("leader"),
        "the other one has read the Lease",
        SECONDS,
    )
    assert named == replicas.identity
    assert status_of(replicas.standby) == 503


def test_only_the_loopback_is_listened_on(replicas: Replicas) -> None:
    addresses = {one[4][0] for one in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    others = [one for one in addresses if not str(one).startswith("127.")]
    for address in others:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((str(address), replicas.leader), timeout=2)
    listening = [
        line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:] if line.split()[3] == "0A"
    ]
    assert f"0100007F:{replicas.leader:04X}" in listening
    assert not [one for one in listening if one.endswith(f":{replicas.leader:04X}") and not one.startswith("0100007F")]


def test_who_may_get_a_pod_hears_of_it_and_nobody_else_does(replicas: Replicas, ground: Ground, users: Users) -> None:
    status, found = ask(replicas.leader, f"/why/pod/{ground.waiting}", users.tenant)
    assert (status, found["state"]) == (200, "Unschedulable")
    assert any(one["type"] == "LimitReached" for one in found["reasons"])
    forbidden = {
        "another namespace's pod": (ground.theirs, users.tenant),
        "a pod of another namespace that does not exist": (f"{ground.theirs}x", users.tenant),
        "somebody without rights": (ground.mine, users.nobody),
    }
    for what, (pod, token) in forbidden.items():
        status, found = ask(replicas.leader, f"/why/pod/{pod}", token)
        assert (status, list(found)) == (403, ["error"]), what
    assert ask(replicas.leader, f"/why/pod/{ground.plot.name}/none", users.tenant)[0] == 404
    assert ask(replicas.leader, f"/why/pod/{ground.mine}", users.tenant[:-4] + "AAAA")[0] == 401
    assert ask(replicas.leader, "/why/node/other", users.tenant)[0] == 403


def test_a_node_shows_the_pods_that_somebody_may_list_and_counts_the_others(
    plane: DevCluster, replicas: Replicas, ground: Ground, users: Users
) -> None:
    status, found = ask(replicas.leader, f"/why/node/{ground.node}", users.tenant)
    assert status == 200
    assert (found["pods"], found["podsElsewhere"]) == ([ground.mine], 1)
    assert found["reasons"][0]["type"] == "PodBudget"
    theirs, _, name = ground.theirs.partition("/")
    assert theirs not in json.dumps(found)
    assert name not in json.dumps(found)
    assert "secret" not in json.dumps(found)
    everything = role("", f"why-all-{ground.plot.name}", [PODS_RULE], "auditor", theirs)
    nodes = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]
    apply(plane, *everything, *role("", f"why-nodes-{ground.plot.name}", nodes, "auditor", theirs))
    path = f"/why/node/{ground.node}"

    def seen() -> dict[str, Any]:
        found = ask(replicas.leader, path, users.auditor)[1]
        return found if sorted(found.get("pods", ())) == sorted([ground.mine, ground.theirs]) else {}

    found = eventually(seen, "the rights are seen", SECONDS, 2.0)
    assert f"PodDisruptionBudget={theirs}/secret" in found["summary"]


def why(*arguments: str, config: Path) -> dict[str, Any]:
    result = CliRunner().invoke(
        command, [*arguments, "-o", "json", "--kubeconfig", str(config)], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.output)
    return found


@pytest.mark.usefixtures("forwarded")
def test_a_tenant_asks_the_leader_through_the_api_server(ground: Ground, users: Users) -> None:
    found = why("pod", ground.waiting, config=users.tenants)
    assert found["state"] == "Unschedulable"
    assert found["source"] == f"the leader (pod {SYSTEM}/{LEADER_POD})"
    found = why("node", ground.node, "--through=leader", config=users.tenants)
    assert (found["pods"], found["podsElsewhere"]) == ([ground.mine], 1)
    with pytest.raises(UserError, match=r"may not get pod .* \(says the leader"):
        why("pod", ground.theirs, config=users.tenants)


@pytest.mark.usefixtures("forwarded")
def test_a_tenant_looks_at_the_leaders_page_through_the_api_server(
    ground: Ground, users: Users, tmp_path: Path
) -> None:
    file = tmp_path / "page.html"
    options = ["--through=leader", "--kubeconfig", str(users.tenants), "--namespace", ground.plot.name]
    text, page = "", dict[str, Any]()

    def is_answered() -> bool:
        """Whether the sentence of `why` is on the page: the leader answers for pages with a share of its time."""
        nonlocal text, page
        result = CliRunner().invoke(ui, [*options, "--export", str(file)], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        text = file.read_text(encoding="utf-8")
        page = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
        return any(one.get("state") for one in page["waiting"])

    eventually(is_answered, "the page says why the pod waits", SECONDS, 2.0)
    assert page["source"] == "the leader"
    assert "nodes" not in page
    assert "history" not in page
    assert "which you may not list" in page["noHistory"]
    assert page["waiting"][0]["names"] == [ground.waiting.partition("/")[2]]
    assert "No node can take pod" in page["waiting"][0]["text"]
    assert ground.theirs.partition("/")[0] not in text


def test_a_browser_shows_nodes_pods_reasons_and_decisions_of_a_cluster(
    plane: DevCluster, replicas: Replicas, ground: Ground, users: Users, tmp_path: Path
) -> None:
    listed = [
        {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list"]},
        {"apiGroups": [names.GROUP], "resources": ["nodeclaims", "nodepools"], "verbs": ["list"]},
    ]
    apply(plane, *role("", f"ui-all-{ground.plot.name}", listed, "auditor", ground.theirs.partition("/")[0]))
    config, file = kubeconfig(plane, tmp_path / "auditor", users.auditor), tmp_path / "page.html"
    arguments = ["--leader", f"http://127.0.0.1:{replicas.leader}", "--kubeconfig", str(config), "--no-browser"]

    def is_whole() -> bool:
        """Whether the leader has seen these rights, the decision is in its history, and it has looked at why the pod waits."""
        result = CliRunner().invoke(ui, [*arguments, "--export", str(file)])
        text = file.read_text(encoding="utf-8") if result.exit_code == 0 else ""
        return all(one in text for one in (ground.node, "No node can take pod", '"reason":"Provisioning"'))

    eventually(is_whole, "the page has nodes, a reason and a decision", SECONDS, 2.0)
    plane.start_program(LOOKER, [sys.executable, "-m", "provisioner.cli.main", "ui", *arguments])
    try:
        served = re.compile(r"http://127\.0\.0\.1:\d+/#\S+")
        (url, *_) = eventually(lambda: served.findall(plane.log(LOOKER).read_text()), "it serves", SECONDS)
        with chromium() as browser:
            tab = Tab(browser.new_context()).open(url)
            page = tab.page
            for name in ("Nodes", "Waiting pods", "NodePools", "Price over time", "Decisions"):
                expect(page.get_by_role("heading", name=name, exact=True)).to_be_visible()
            expect(page.get_by_role("table", name="Pods without a node")).to_contain_text("No node can take pod")
            expect(page.get_by_role("table", name="Decisions, newest first")).to_contain_text("Provisioning")
            page.get_by_role("button", name=ground.node).click()
            pods = page.get_by_role("dialog").get_by_role("table")
            for one in (ground.mine, ground.theirs):
                expect(pods).to_contain_text(one.partition("/")[2])
            page.get_by_role("button", name="Why does this node stay?").click()
            expect(page.get_by_role("dialog")).to_contain_text("PodDisruptionBudget")
            assert tab.complaints == []
    finally:
        plane.stop(LOOKER)


@pytest.mark.usefixtures("forwarded")
def test_who_may_not_reach_the_leader_is_told_and_read_for_with_their_own_rights(
    plane: DevCluster, ground: Ground, users: Users, replicas: Replicas
) -> None:
    with pytest.raises(UserError, match="you may not get Lease dovetail-system/karpenter-leader-election"):
        why("pod", ground.mine, "--through=leader", config=users.nobodys)
    with pytest.raises(
        UserError, match=r"could not list .* The leader could not be asked either: you may not get Lease"
    ):
        why("pod", ground.mine, config=users.nobodys)
    found = why("pod", ground.waiting, config=user_kubeconfig(plane, "certified", ["system:masters"]))
    assert found["source"].startswith(
        "your own permissions, because the leader could not be asked: your credentials have no token"
    )
    url = f"http://127.0.0.1:{replicas.leader}"
    found = why("pod", ground.waiting, "--leader", url, config=users.tenants)
    assert found["source"] == f"the leader at {url}"
    with pytest.raises(UserError, match=r"is not http://127\.0\.0\.1:PORT"):
        why("pod", ground.waiting, "--leader", "http://192.0.2.1:80", config=users.tenants)
    with pytest.raises(UserError, match="this replica does not lead"):
        why("pod", ground.waiting, "--leader", f"http://127.0.0.1:{replicas.standby}", config=users.tenants)


@pytest.mark.usefixtures("forwarded")
@pytest.mark.parametrize("verb", ["get", "create"])
def test_a_port_forward_needs_both_verbs(
    plane: DevCluster, client: Client, ground: Ground, tmp_path: Path, verb: str
) -> None:
    space, account = ground.theirs.partition("/")[0], f"half-{verb}"
    rules = [
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods/portforward"], "verbs": [verb]},
    ]
    one = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": space}}
    apply(plane, one, *role(SYSTEM, f"{account}-{space}", rules, account, space))
    config = kubeconfig(plane, tmp_path / account, token_of(client, space, account))
    for resource, right in (("leases", "get"), ("pods", verb)):
        eventually(lambda: may(plane, config, right, resource), "the right is seen", SECONDS)  # noqa: B023
    with pytest.raises(UserError, match="you may not open port-forwards"):
        why("pod", ground.mine, "--through=leader", config=config)


@pytest.mark.usefixtures("forwarded")
def test_the_example_lets_nobody_forward_to_other_pods(replicas: Replicas, users: Users) -> None:
    connection = connect(str(users.tenants))
    try:

        def refused() -> str:
            try:
                open_port(
                    connection.endpoint(),
                    SYSTEM,
                    f"x{LEADER_POD}",
                    replicas.leader,
                    SystemClock(),
                    5.0 * PATIENCE,
                    65536,
                ).close()
            except ApiError as error:
                return error.message
            return ""

        eventually(lambda: "to the provisioner only" in refused(), "the policy is in force", SECONDS, 0.5)
        open_port(
            connection.endpoint(), SYSTEM, LEADER_POD, replicas.leader, SystemClock(), 5.0 * PATIENCE, 65536
        ).close()
    finally:
        connection.close()


def test_no_token_is_in_the_log(plane: DevCluster, replicas: Replicas, ground: Ground, users: Users) -> None:
    assert ask(replicas.leader, f"/why/pod/{ground.mine}", users.tenant)[0] == 200
    log = plane.log(FIRST)
    eventually(lambda: "Answered a request of dovetail why" in log.read_text(), "it is logged")
    text = log.read_text()
    assert users.tenant not in text
    assert users.tenant.rpartition(".")[2] not in text
