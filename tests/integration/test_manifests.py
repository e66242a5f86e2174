"""The manifests on a real control plane, and the programs with exactly the roles that the manifests give them.

One dev cluster for the module. Its own kube-scheduler is stopped: the one of manifests/scheduler runs instead, like all
other programs as a child process, with the command line of its Deployment and a token of its ServiceAccount. The
webhook is called through its Service, made an ExternalName of this machine because nothing routes cluster addresses here.
"""

import base64
import json
import os
import re
import shlex
import shutil
import ssl
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.devcluster.components import Layout, command
from provisioner.lab.devcluster.errors import StateError
from provisioner.lab.harness import figures
from provisioner.lab.harness.session import answers
from provisioner.lab.harness.workload import REPOSITORY
from provisioner.lab.progress import progress_for
from provisioner.operator.certificates import (
    EXTENDER_CLIENT_SECRET,
    EXTENDER_SERVER_NAME,
    EXTENDER_SERVER_SECRET,
    REPORT_CLIENT_SECRET,
    REPORT_SERVER_SECRET,
)
from tests.support import conformity
from tests.support.charts import CHART, DEFINITIONS, template
from tests.support.deployed import container_of, expanded, kubeconfig_of, start
from tests.support.eventually import eventually
from tests.support.kubeconfigs import service_account_kubeconfig
from tests.support.ports import free_port

pytestmark = [pytest.mark.plane, pytest.mark.timeout(600)]

NAMESPACE = "dovetail-system"
MANIFESTS = REPOSITORY / "manifests"
PROGRAMS = ("provisioner", "webhook", "extender", "manifest-scheduler")
READY_SECONDS = 90.0
FAR = "far-scheduler"

Document = dict[str, Any]


@dataclass(frozen=True)
class Applied:
    """The cluster with everything applied and running."""

    cluster: DevCluster
    first: str
    second: str

    def get(self, *what: str) -> Any:
        return json.loads(self.cluster.kubectl("get", *what, "-o", "json"))

    def items(self, *what: str) -> list[Document]:
        found: list[Document] = self.get(*what)["items"]
        return found

    def log(self, program: str) -> str:
        return self.cluster.log(program).read_text(encoding="utf-8", errors="replace")

    def tail(self, program: str) -> str:
        return f"{program}\n{self.log(program)[-2000:]}"


@pytest.fixture(scope="module")
def applied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Applied]:
    cluster = DevCluster(temporary=True, extender=True, progress=progress_for(sys.__stderr__))
    cluster.up()
    try:
        cluster.stop("kube-scheduler")
        yield _run(cluster, tmp_path_factory.mktemp("programs"))
    finally:
        cluster.down()


def _run(cluster: DevCluster, directory: Path) -> Applied:
    for name in ("crds", "namespace"):
        _apply(cluster, name)
    first, second = _apply(cluster, "overlays/complete"), _apply(cluster, "overlays/complete")
    _route_the_webhook(cluster)
    cluster.kubectl("apply", "--validate=strict", "-f", str(MANIFESTS / "examples" / "extender-certificates.yaml"))
    server, client = directory / "server", directory / "client"
    for empty in (server, client):
        empty.mkdir()
    ports, run = cluster.ports, Applied(cluster, first, second)
    provisioner = {
        "bind-address": "127.0.0.1",
        "metrics-port": ports["provisioner-metrics"],
        "health-probe-port": ports["provisioner-health"],
        "report-port": ports["provisioner-reports"],
        "report-address": f"127.0.0.1:{ports['provisioner-reports']}",
        "report-cert-dir": server,
    }
    webhook = {
        "bind": f"127.0.0.1:{ports['webhook']}",
        "metrics-bind": f"127.0.0.1:{ports['webhook-metrics']}",
        "health-bind": "127.0.0.1:0",
        "cert-dir": directory / "serving",
    }
    extender = {
        "bind": f"127.0.0.1:{ports['extender']}",
        "metrics-bind": f"127.0.0.1:{ports['extender-metrics']}",
        "health-bind": "127.0.0.1:0",
        "reports-ca": client / "ca.crt",
        "reports-cert": client / "tls.crt",
        "reports-key": client / "tls.key",
    }
    _start(run, "webhook", "dovetail-webhook", webhook)
    _start(run, "extender", "dovetail-scheduler", extender)
    _start_scheduler(run, directory)
    _start(run, "provisioner", "dovetail-provisioner", provisioner)
    pages = {
        "provisioner": f"http://127.0.0.1:{ports['provisioner-health']}/readyz",
        "webhook": f"http://127.0.0.1:{ports['webhook-metrics']}/readyz",
        "extender": f"http://127.0.0.1:{ports['extender-metrics']}/readyz",
    }
    for name, page in pages.items():
        eventually(partial(answers, page), partial(run.tail, name), READY_SECONDS, 0.2)
    eventually(
        lambda: _deliver(run, server, client), lambda: f"Secrets\n{run.log('provisioner')[-2000:]}", READY_SECONDS, 0.5
    )
    eventually(lambda: _bundle(run), lambda: f"caBundle\n{run.log('webhook')[-2000:]}", READY_SECONDS, 0.5)
    eventually(lambda: _holder(run), lambda: f"scheduler\n{run.log('manifest-scheduler')[-2000:]}", READY_SECONDS, 0.5)
    return run


def _apply(cluster: DevCluster, name: str) -> str:
    return cluster.kubectl("apply", "--validate=strict", "-k", str(MANIFESTS / name))


def _route_the_webhook(cluster: DevCluster) -> None:
    outside = {"spec": {"type": "ExternalName", "externalName": "127.0.0.1", "clusterIP": None, "clusterIPs": None}}
    cluster.kubectl("-n", NAMESPACE, "patch", "service", "dovetail-webhook", "--type=merge", "-p", json.dumps(outside))
    path = "/webhooks/0/clientConfig/service/port"
    port = [{"op": "replace", "path": path, "value": cluster.ports["webhook"]}]
    for kind in ("mutatingwebhookconfiguration", "validatingwebhookconfiguration"):
        cluster.kubectl("patch", kind, "dovetail-webhook", "--type=json", "-p", json.dumps(port))


def _deliver(
    run: Applied, server: Path, client: Path, secrets: tuple[str, str] = (REPORT_SERVER_SECRET, REPORT_CLIENT_SECRET)
) -> bool:
    """What kubelets do once the provisioner has filled its Secrets; whether it has."""
    for name, directory in zip(secrets, (server, client), strict=True):
        data = run.get("-n", NAMESPACE, "secret", name).get("data", {})
        if not data:
            return False
        for key, value in data.items():
            (directory / key).write_bytes(base64.b64decode(value))
    return True


def _pod(run: Applied, deployment: str) -> Document:
    found: Document = run.get("-n", NAMESPACE, "deployment", deployment)["spec"]["template"]["spec"]
    return found


def _kubeconfig(run: Applied, pod: Document) -> Path:
    return kubeconfig_of(run.cluster, pod, NAMESPACE)


def _start(run: Applied, name: str, deployment: str, flags: dict[str, object], *, known_as: str = "") -> None:
    start(run.cluster, _pod(run, deployment), name, flags, namespace=NAMESPACE, known_as=known_as)


def _start_scheduler(run: Applied, directory: Path, far: tuple[int, int, Path] | None = None) -> None:
    """The Deployment's own kube-scheduler; or another one that asks an extender elsewhere (its own port, the extender's, certificates)."""
    pod = _pod(run, "dovetail-scheduler")
    kubeconfig = str(_kubeconfig(run, pod))
    (written,) = (volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume)
    configuration = yaml.safe_load(run.get("-n", NAMESPACE, "configmap", written)["data"]["configuration.yaml"])
    configuration["clientConnection"]["kubeconfig"] = kubeconfig
    configuration["extenders"][0]["urlPrefix"] = f"http://127.0.0.1:{run.cluster.ports['extender']}"
    name, port = "manifest-scheduler", run.cluster.ports["kube-scheduler"]
    if far is not None:
        name, port = FAR, far[0]
        configuration["leaderElection"]["leaderElect"] = False
        configuration["profiles"][0]["schedulerName"] = FAR
        files = {"certFile": "tls.crt", "keyFile": "tls.key", "caFile": "ca.crt"}
        configuration["extenders"][0] |= {
            "urlPrefix": f"https://127.0.0.1:{far[1]}",
            "enableHTTPS": True,
            "tlsConfig": {
                **{key: str(far[2] / file) for key, file in files.items()},
                "serverName": f"{EXTENDER_SERVER_NAME}.{NAMESPACE}.svc",
            },
            "ignorable": False,
        }
    file = directory / "scheduler.json"
    file.write_text(json.dumps(configuration), encoding="utf-8")
    places = {
        "config": file,
        "secure-port": port,
        "bind-address": "127.0.0.1",
        "authentication-kubeconfig": kubeconfig,
        "authorization-kubeconfig": kubeconfig,
    }
    command = container_of(pod, "kube-scheduler")["command"]
    assert command[0] == "kube-scheduler"
    arguments = [*expanded(command[1:], NAMESPACE), *(f"--{flag}={value}" for flag, value in places.items())]
    run.cluster.start_program(name, [str(run.cluster.bin("kube-scheduler")), *arguments])


def _bundle(run: Applied) -> str:
    (hook,) = run.get("mutatingwebhookconfiguration", "dovetail-webhook")["webhooks"]
    return str(hook["clientConfig"].get("caBundle", ""))


def _holder(run: Applied) -> str:
    leases = {one["metadata"]["name"]: one["spec"] for one in run.items("-n", NAMESPACE, "leases")}
    return str(leases.get("dovetail-scheduler", {}).get("holderIdentity", ""))


# --- tests ----------------------------------------------------------------------------------------------------------


def test_everything_is_made_and_applying_it_again_changes_nothing(applied: Applied) -> None:
    first, second = applied.first.splitlines(), applied.second.splitlines()
    assert len(first) >= 40
    assert {line.rsplit(" ", 1)[1] for line in first} == {"created"}, applied.first
    assert len(second) == len(first)
    # kubectl calls a PodDisruptionBudget configured always, because of how it merges selectors: the generation tells
    assert {line.rsplit(" ", 1)[1] for line in second} <= {"unchanged", "configured"}, applied.second
    for kind in ("deployments", "poddisruptionbudgets", "networkpolicies"):
        generations = {
            one["metadata"]["name"]: one["metadata"]["generation"] for one in applied.items("-n", NAMESPACE, kind)
        }
        assert set(generations.values()) == {1}, (kind, generations)


def test_applying_again_keeps_the_bundle_that_the_webhook_put_in(applied: Applied) -> None:
    file = str(MANIFESTS / "base" / "webhook-configuration.yaml")
    again = json.loads(applied.cluster.kubectl("apply", "--dry-run=server", "-f", file, "-o", "json"))
    assert [one["kind"] for one in again["items"]] == ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]
    for one in again["items"]:
        assert one["webhooks"][0]["clientConfig"]["caBundle"] == _bundle(applied) != ""


def test_the_namespace_takes_the_pods_of_every_deployment(applied: Applied) -> None:
    def short() -> list[str]:
        sets = applied.items("-n", NAMESPACE, "replicasets")
        return (
            [json.dumps(one["status"]) for one in sets if one["status"]["replicas"] != 2] if len(sets) == 3 else ["-"]
        )

    eventually(lambda: not short(), "two pods of each Deployment", 60.0, 0.5)


def test_pods_run_on_plan_and_go_with_these_roles_and_no_other(applied: Applied) -> None:
    cluster = applied.cluster
    cluster.kubectl("create", "namespace", "quick-start")
    cluster.kubectl("label", "namespace", "quick-start", "dovetail.dev/scheduler=enabled", "dovetail.dev/arch=arm64")
    probe = ("-n", "quick-start", "run", "probe", "--image=example.com/probe", "--dry-run=server", "-o", "json")
    eventually(lambda: "stamped" in cluster.kubectl(*probe, check=False), "the webhook has seen the labels", 60.0, 0.5)
    cluster.kubectl("apply", "--validate=strict", "-f", str(MANIFESTS / "examples" / "quick-start.yaml"))

    def running() -> list[Document]:
        pods = applied.items("-n", "quick-start", "pods")
        up = [
            pod
            for pod in pods
            if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
        ]
        return up if len(up) == len(pods) == 10 else []

    pods = eventually(running, lambda: f"ten pods running\n{applied.log('provisioner')[-3000:]}", 90.0, 0.5)
    claim, *others = applied.items("nodeclaims")  # for these ten, and none for our own pods that wait for a node
    nodes = {pod["spec"]["nodeName"] for pod in pods}
    assert nodes == {one["status"]["nodeName"] for one in (claim, *others)}
    labels = applied.get("node", nodes.pop())["metadata"]["labels"]
    assert labels["kubernetes.io/arch"] == "arm64"
    for pod in pods:
        assert pod["spec"]["schedulerName"] == "dovetail-scheduler"
        assert "arch" in pod["metadata"]["annotations"]["dovetail.dev/stamped"]

    def events() -> set[str]:
        return {event["reason"] for event in applied.items("-n", "quick-start", "events")}

    eventually(lambda: "Nominated" in events(), events, 60.0, 0.5)

    cluster.kubectl("delete", "nodeclaim", claim["metadata"]["name"], "--wait=false")  # drained by evictions
    eventually(
        lambda: running() and claim["metadata"]["name"] not in _names(applied, "nodeclaims"),
        lambda: f"the pods on another node\n{applied.log('provisioner')[-3000:]}",
        120.0,
        0.5,
    )
    soon = {"spec": {"disruption": {"consolidateAfter": "1s"}}}
    cluster.kubectl("patch", "nodepool", "quick-start", "--type=merge", "-p", json.dumps(soon))
    cluster.kubectl("-n", "quick-start", "scale", "deployment", "web", "--replicas=0")
    eventually(
        lambda: not _names(applied, "nodeclaims") and not _names(applied, "nodes"),
        lambda: f"no node left\n{applied.log('provisioner')[-3000:]}",
        120.0,
        0.5,
    )
    for program in PROGRAMS:
        lines = [
            line
            for line in applied.log(program).splitlines()
            if "forbidden" in line.lower()
            and "because it is being terminated" not in line  # the namespace of another test
        ]
        assert not lines, program + ":\n" + "\n".join(lines[:5])


def _names(run: Applied, kind: str) -> list[str]:
    return [one["metadata"]["name"] for one in run.items(kind)]


def test_reports_have_an_address_over_mtls(applied: Applied) -> None:
    url = f"https://127.0.0.1:{applied.cluster.ports['provisioner-reports']}/reports"

    def told() -> bool:
        lease: Document = applied.get("-n", NAMESPACE, "lease", "karpenter-leader-election")
        return bool(lease["metadata"]["annotations"].get("dovetail.dev/reports-url") == url)

    eventually(
        told, lambda: f"the Lease has the address\n{applied.log('provisioner')[-2000:]}", 30.0
    )  # it looks every ten seconds
    eventually(
        lambda: url in applied.log("extender"), lambda: f"the extender knows {url}\n{applied.log('extender')[-2000:]}"
    )


def test_an_extender_off_loopback_is_asked_with_certificates_of_the_provisioner(
    applied: Applied, tmp_path: Path
) -> None:
    """A kube-scheduler that cannot do without it binds a pod; without its certificate it would bind none."""
    cluster, server, client = applied.cluster, tmp_path / "server", tmp_path / "client"
    for empty in (server, client):
        empty.mkdir()
    secrets = (EXTENDER_SERVER_SECRET, EXTENDER_CLIENT_SECRET)
    eventually(lambda: _deliver(applied, server, client, secrets), "certificates", READY_SECONDS, 0.5)
    port, metrics = free_port(), free_port()
    flags: dict[str, object] = {
        "bind": f"127.0.0.1:{port}",
        "metrics-bind": f"127.0.0.1:{metrics}",
        "health-bind": "127.0.0.1:0",
        "tls-cert": server / "tls.crt",
        "tls-key": server / "tls.key",
        "tls-client-ca": server / "ca.crt",
        "reports-ca": "",
        "reports-cert": "",
        "reports-key": "",
    }
    _start(applied, "extender", "dovetail-scheduler", flags, known_as="far-extender")
    try:
        ready = f"http://127.0.0.1:{metrics}/readyz"
        eventually(
            lambda: answers(ready), lambda: f"extender ready\n{applied.log('far-extender')[-2000:]}", READY_SECONDS, 0.2
        )
        _start_scheduler(applied, tmp_path, (free_port(), port, client))
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "far", "labels": {"far": "yes"}}}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "far", "namespace": "default"},
            "spec": {
                "schedulerName": FAR,
                "nodeSelector": {"far": "yes"},
                "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "main", "image": "example.com/far"}],
            },
        }
        cluster.kubectl("create", "-f", "-", stdin=json.dumps(node))
        room = {"status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}}
        cluster.kubectl("patch", "node", "far", "--subresource=status", "--type=merge", "-p", json.dumps(room))
        cluster.kubectl("create", "-f", "-", stdin=json.dumps(pod))
        eventually(
            lambda: applied.get("-n", "default", "pod", "far")["spec"].get("nodeName") == "far",
            lambda: f"bound\n{applied.log(FAR)[-3000:]}\n{applied.log('far-extender')[-2000:]}",
            READY_SECONDS,
            0.5,
        )
        page = figures.read(f"http://127.0.0.1:{metrics}/metrics")
        assert "filter" in {labels["verb"] for labels, _ in figures.series(page, "dovetail_extender_requests_total")}
    finally:
        for program in (FAR, "far-extender"):
            cluster.stop(program)
        cluster.kubectl("delete", "pod/far", "node/far", "--ignore-not-found", "--now", "-n", "default")


def test_the_stamping_example_does_what_it_says(applied: Applied) -> None:
    stamped = _dry_run(applied, "stamping.yaml", "stamped")

    def wants(pod: str) -> dict[str, list[str]]:
        affinity = stamped[pod]["spec"].get("affinity", {}).get("nodeAffinity", {})
        terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
        return {one["key"]: sorted(one["values"]) for term in terms for one in term["matchExpressions"]}

    assert wants("arm-on-demand") == {
        "kubernetes.io/arch": ["arm64"],
        "kubernetes.io/os": ["linux"],
        "karpenter.sh/capacity-type": ["on-demand"],
    }
    assert wants("own-choice") == {"kubernetes.io/os": ["linux"], "karpenter.sh/capacity-type": ["spot"]}
    assert wants("left-alone") == {}


def test_the_scheduler_example_does_what_it_says(applied: Applied) -> None:
    pods = _dry_run(applied, "scheduler-opt-in.yaml", "on-plan")
    assert {name: pod["spec"]["schedulerName"] for name, pod in pods.items()} == {
        "by-namespace": "dovetail-scheduler",
        "by-name": "dovetail-scheduler",
    }


def _dry_run(run: Applied, example: str, namespace: str) -> dict[str, Document]:
    """The pods of an example as the API server would store them; only the namespace is really made."""
    file = MANIFESTS / "examples" / example
    documents = list(yaml.safe_load_all(file.read_text(encoding="utf-8")))
    (own,) = (one for one in documents if one["kind"] == "Namespace")
    assert own["metadata"]["name"] == namespace
    run.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(own))
    eventually(lambda: run.items("-n", namespace, "serviceaccounts"), f"a service account in {namespace}")
    answer = run.cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", str(file), "-o", "json")
    return {one["metadata"]["name"]: one for one in json.loads(answer)["items"] if one["kind"] == "Pod"}


ALLOWED = """
provisioner create nodeclaims.karpenter.sh
provisioner patch nodeclaims.karpenter.sh/status
provisioner create pods/eviction
provisioner delete pods
provisioner patch nodes
provisioner create nodes
provisioner list kwoknodeclasses.karpenter.kwok.sh
provisioner patch secrets dovetail-report-server-tls -n dovetail-system
provisioner patch secrets dovetail-report-client-tls -n dovetail-system
provisioner patch secrets dovetail-extender-server-tls -n dovetail-system
provisioner patch leases.coordination.k8s.io karpenter-leader-election -n dovetail-system
webhook watch secrets dovetail-webhook-tls -n dovetail-system
webhook patch secrets dovetail-webhook-tls -n dovetail-system
webhook patch mutatingwebhookconfigurations.admissionregistration.k8s.io dovetail-webhook
webhook patch leases.coordination.k8s.io dovetail-certs -n dovetail-system
webhook patch leases.coordination.k8s.io dovetail-certs-replicas -n dovetail-system
webhook watch leases.coordination.k8s.io dovetail-scheduler -n dovetail-system
webhook list namespaces
webhook watch nodepools.karpenter.sh
webhook watch nodeoverlays.karpenter.sh
webhook watch ec2nodeclasses.karpenter.k8s.aws
webhook patch validatingwebhookconfigurations.admissionregistration.k8s.io dovetail-webhook
scheduler create pods/binding
scheduler patch nodes
scheduler update leases.coordination.k8s.io dovetail-scheduler -n dovetail-system
scheduler watch leases.coordination.k8s.io karpenter-leader-election -n dovetail-system
"""
REFUSED = """
provisioner get secrets dovetail-webhook-tls -n dovetail-system
provisioner patch secrets dovetail-webhook-tls -n dovetail-system
provisioner list secrets
provisioner create secrets -n dovetail-system
provisioner create pods
provisioner patch pods
provisioner create pods/exec
provisioner create nodepools.karpenter.sh
provisioner delete nodepools.karpenter.sh
provisioner list ec2nodeclasses.karpenter.k8s.aws
provisioner patch ec2nodeclasses.karpenter.k8s.aws
provisioner patch configmaps dovetail-aws-shortage -n dovetail-system
provisioner get daemonsets.apps aws-node -n kube-system
provisioner patch mutatingwebhookconfigurations.admissionregistration.k8s.io dovetail-webhook
provisioner create leases.coordination.k8s.io -n dovetail-system
provisioner patch leases.coordination.k8s.io dovetail-certs -n dovetail-system
provisioner patch leases.coordination.k8s.io dovetail-scheduler -n dovetail-system
provisioner patch leases.coordination.k8s.io karpenter-leader-election -n kube-system
provisioner escalate clusterroles.rbac.authorization.k8s.io
webhook list pods
webhook patch nodes
webhook list nodeclaims.karpenter.sh
webhook get secrets dovetail-report-server-tls -n dovetail-system
webhook list secrets
webhook create secrets -n dovetail-system
webhook delete secrets dovetail-webhook-tls -n dovetail-system
webhook create serviceaccounts/token dovetail-provisioner -n dovetail-system
webhook create mutatingwebhookconfigurations.admissionregistration.k8s.io
webhook patch mutatingwebhookconfigurations.admissionregistration.k8s.io another
webhook delete mutatingwebhookconfigurations.admissionregistration.k8s.io dovetail-webhook
webhook create validatingwebhookconfigurations.admissionregistration.k8s.io
webhook patch validatingwebhookconfigurations.admissionregistration.k8s.io another
webhook patch ec2nodeclasses.karpenter.k8s.aws
webhook create leases.coordination.k8s.io -n dovetail-system
webhook list leases.coordination.k8s.io -n dovetail-system
webhook delete leases.coordination.k8s.io dovetail-certs -n dovetail-system
webhook patch leases.coordination.k8s.io karpenter-leader-election -n dovetail-system
webhook patch leases.coordination.k8s.io dovetail-scheduler -n dovetail-system
webhook patch configmaps dovetail-defaults -n dovetail-system
webhook update leases.coordination.k8s.io kube-scheduler -n kube-system
scheduler create nodes
scheduler delete nodes
scheduler patch nodeclaims.karpenter.sh
scheduler delete nodeclaims.karpenter.sh
scheduler list secrets
scheduler update leases.coordination.k8s.io karpenter-leader-election -n dovetail-system
scheduler patch leases.coordination.k8s.io karpenter-leader-election -n dovetail-system
scheduler patch leases.coordination.k8s.io dovetail-certs -n dovetail-system
scheduler patch mutatingwebhookconfigurations.admissionregistration.k8s.io dovetail-webhook
"""


def _review(row: str) -> Document:
    """A SubjectAccessReview from: who verb resource[.group][/subresource] [name] [-n namespace]."""
    who, verb, what, *rest = shlex.split(row)
    namespace = rest.pop() if "-n" in rest else ""
    name = next((word for word in rest if word != "-n"), "")
    path, _, below = what.partition("/")
    resource, _, group = path.partition(".")
    attributes = {"verb": verb, "group": group, "resource": resource, "subresource": below, "name": name}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{NAMESPACE}:dovetail-{who}",
            "groups": ["system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated"],
            "resourceAttributes": {**attributes, "namespace": namespace},
        },
    }


@pytest.mark.parametrize(("rows", "expected"), [(ALLOWED, True), (REFUSED, False)], ids=["may", "may not"])
def test_what_each_account_may_do(applied: Applied, rows: str, expected: bool) -> None:
    wanted = [row for row in rows.splitlines() if row]
    asked = {"apiVersion": "v1", "kind": "List", "items": [_review(row) for row in wanted]}
    output = 'jsonpath={.status.allowed}{"\\n"}'
    answered = applied.cluster.kubectl("create", "-f", "-", "-o", output, stdin=json.dumps(asked)).splitlines()
    assert len(answered) == len(wanted)
    wrong = [row for row, allowed in zip(wanted, answered, strict=True) if (allowed == "true") != expected]
    assert wrong == []


# --- nothing more than the roles say: what the API server itself answers to each account -----------------------------


Grant = tuple[str, str, str, str]
"""Verb, group, resource, name ("" for every one)."""


def _grants(rules: list[Document]) -> set[Grant]:
    return {
        (verb, group, resource, name)
        for rule in rules
        for verb in rule["verbs"]
        for group in rule.get("apiGroups", ())
        for resource in rule.get("resources", ())
        for name in rule.get("resourceNames") or [""]
    }


def _told(run: Applied, account: str, namespace: str) -> set[Grant]:
    """A SelfSubjectRulesReview with the account's own token."""
    kubeconfig = service_account_kubeconfig(run.cluster, NAMESPACE, account)
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    answer = run.cluster.kubectl(
        "--kubeconfig", str(kubeconfig), "create", "--validate=false", "-f", "-", "-o", "json", stdin=json.dumps(review)
    )
    status = json.loads(answer)["status"]
    assert not status["incomplete"]
    return _grants(status["resourceRules"])


@pytest.mark.parametrize("account", ["dovetail-provisioner", "dovetail-webhook", "dovetail-scheduler"])
@pytest.mark.parametrize("namespace", [NAMESPACE, "kube-system", "default"])
def test_an_account_may_do_what_its_roles_say_and_nothing_else(applied: Applied, account: str, namespace: str) -> None:
    everybody = _told(applied, "default", namespace)
    bound: list[Document] = []
    for scope, kind in (([], "clusterrolebindings"), (["-n", namespace], "rolebindings")):
        for binding in applied.items(*scope, kind):
            subjects = [(one["kind"], one["name"], one.get("namespace")) for one in binding.get("subjects", ())]
            if ("ServiceAccount", account, NAMESPACE) in subjects:
                reference = binding["roleRef"]
                where = [] if reference["kind"] == "ClusterRole" else scope
                bound += applied.get(*where, reference["kind"].lower(), reference["name"])["rules"]
                ours = reference["name"].startswith("dovetail-")
                stock = (
                    "system:kube-scheduler",
                    "system:volume-scheduler",
                    "extension-apiserver-authentication-reader",
                )
                assert ours or (account == "dovetail-scheduler" and reference["name"] in stock)
    assert _told(applied, account, namespace) == everybody | _grants(bound)


def test_leases_that_were_deleted_are_made_again_by_their_program(applied: Applied) -> None:
    names = ("dovetail-certs", "dovetail-certs-replicas")
    before = {one["metadata"]["name"]: one["metadata"]["uid"] for one in applied.items("-n", NAMESPACE, "leases")}
    applied.cluster.kubectl("-n", NAMESPACE, "delete", "leases", *names)

    def back() -> bool:
        now = {one["metadata"]["name"]: one["metadata"]["uid"] for one in applied.items("-n", NAMESPACE, "leases")}
        return all(now.get(name, before[name]) != before[name] for name in names)

    eventually(back, lambda: f"new Leases\n{applied.log('webhook')[-2000:]}", 90.0, 0.5)
    assert "forbidden" not in applied.log("webhook").lower()


def test_the_webhook_cannot_turn_its_secret_into_a_token_of_another_account(applied: Applied) -> None:
    """The Secret is there, and what type it has is decided for good when it is made."""
    kubeconfig = service_account_kubeconfig(applied.cluster, NAMESPACE, "dovetail-webhook")
    token = {
        "type": "kubernetes.io/service-account-token",
        "metadata": {"annotations": {"kubernetes.io/service-account.name": "dovetail-provisioner"}},
    }
    with pytest.raises(StateError, match="immutable"):
        applied.cluster.kubectl(
            *("--kubeconfig", str(kubeconfig), "-n", NAMESPACE, "patch", "secret", "dovetail-webhook-tls"),
            *("--type=merge", "-p", json.dumps(token)),
        )


def test_pods_of_a_scheduler_that_is_gone_are_created_again_for_another(applied: Applied, tmp_path: Path) -> None:
    """Those that ask for it. They are gated, so that both are there before the scheduler goes, and are still to be scheduled."""
    cluster = applied.cluster
    namespace: Document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "left"}}
    namespace["metadata"]["labels"] = {"dovetail.dev/scheduler": "enabled"}

    def deployment(name: str, annotations: dict[str, str]) -> Document:
        spec = {
            "schedulingGates": [{"name": "example.com/wait"}],
            "nodeSelector": {"example.com/nowhere": "yes"},
            "containers": [{"name": "main", "image": "example.com/left"}],
        }
        labels = {"app": name}
        template = {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": "left"},
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
        }

    def pods(app: str) -> dict[str, str]:
        found = applied.items("-n", "left", "pods", "-l", f"app={app}")
        return {
            one["metadata"]["name"]: one["spec"]["schedulerName"]
            for one in found
            if "deletionTimestamp" not in one["metadata"]
        }

    made = (deployment("again", {"dovetail.dev/recreate-unscheduled": "true"}), deployment("stays", {}))
    for one in (namespace, *made):
        cluster.kubectl("create", "-f", "-", stdin=json.dumps(one))
    eventually(lambda: pods("again") and pods("stays"), "two pods")
    (first,), (other,) = pods("again"), pods("stays")
    assert pods("again") | pods("stays") == dict.fromkeys((first, other), "dovetail-scheduler")
    cluster.stop("manifest-scheduler")
    try:
        for name in (first, other):
            opened = [{"op": "remove", "path": "/spec/schedulingGates"}]
            cluster.kubectl("-n", "left", "patch", "pod", name, "--type=json", "-p", json.dumps(opened))

        def created_again() -> bool:
            return list(pods("again").values()) == ["default-scheduler"]

        eventually(created_again, lambda: f"another pod\n{applied.log('provisioner')[-3000:]}", 120.0, 0.5)
        assert first not in pods("again")
        assert list(pods("stays")) == [other]

        def told() -> set[str]:
            events = applied.items("-n", "left", "events")
            return {one["involvedObject"]["name"] for one in events if one["reason"] == "SchedulerNotRunning"}

        eventually(
            lambda: other in told(),
            lambda: f"an event for the pod that stays\n{applied.log('provisioner')[-3000:]}",
            60,
        )
    finally:
        cluster.kubectl("delete", "namespace", "left", "--wait=false")
        _start_scheduler(applied, tmp_path)
        eventually(lambda: _holder(applied), "scheduler", READY_SECONDS, 0.5)


# --- variants --------------------------------------------------------------------------------------------------------


def _rendered(run: Applied, directory: Path, kustomization: Document) -> list[Document]:
    directory.mkdir(exist_ok=True)
    (directory / "kustomization.yaml").write_text(json.dumps(kustomization), encoding="utf-8")
    return [one for one in yaml.safe_load_all(run.cluster.kubectl("kustomize", str(directory))) if one]


def _relative(name: str, directory: Path) -> str:
    return os.path.relpath(MANIFESTS / name, directory)


def test_the_aws_overlay_is_valid_and_has_no_scheduler(applied: Applied) -> None:
    text = applied.cluster.kubectl("kustomize", str(MANIFESTS / "overlays" / "aws"))
    documents = [one for one in yaml.safe_load_all(text) if one]
    (deployed,) = (
        one for one in documents if one["metadata"]["name"] == "dovetail-provisioner" and one["kind"] == "Deployment"
    )
    assert "--provider=aws" in deployed["spec"]["template"]["spec"]["containers"][0]["args"]
    assert not [
        one["metadata"]["name"] for one in documents if one["metadata"]["name"].startswith("dovetail-scheduler")
    ]
    assert not [
        one for one in documents if "kwok" in one["metadata"]["name"] and one["kind"] != "CustomResourceDefinition"
    ]
    applied.cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=text)


def test_what_is_rendered_conforms_to_the_schemas_of_the_api_server_and_to_ours(
    applied: Applied, tmp_path: Path
) -> None:
    definitions = template(DEFINITIONS)
    conformity.write(tmp_path, applied.cluster.kubectl("get", "--raw", "/openapi/v2"), definitions)
    switches = (
        "scheduler",
        "surge",
        "vpaPredictions",
        "conversion",
        "admissionPolicy",
        "webhook.onDemandShares",
        "serviceMonitor",
    )
    values = [f"{name}.enabled=true" for name in (*switches, "webhook.certManager", "webhook.imageArchitectures")]
    conformity.conform(tmp_path, [*template(CHART, "settings.clusterName=c", *values), *definitions])
    for name in ("nodepools.yaml", "ec2.yaml", "aws/nodepools.yaml", "quick-start.yaml"):
        text = (MANIFESTS / "examples" / name).read_text(encoding="utf-8")
        conformity.conform(tmp_path, [one for one in yaml.safe_load_all(text) if one])
    pool = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p"}, "spec": {"tmplate": {}}}
    with pytest.raises(AssertionError, match="tmplate"):
        conformity.conform(tmp_path, [pool])


def test_a_scheduler_of_the_clusters_own_version_can_be_added(applied: Applied, tmp_path: Path) -> None:
    directory = tmp_path / "mine"
    documents = _rendered(
        applied,
        directory,
        {
            "resources": [_relative("overlays/aws", directory), _relative("scheduler", directory)],
            "components": [_relative("components/scheduler-before-1.35", directory)],
            "images": [{"name": "registry.k8s.io/kube-scheduler", "newTag": "v1.33.4"}],
        },
    )
    (pod,) = (
        one["spec"]["template"]["spec"]
        for one in documents
        if one["kind"] == "Deployment" and one["metadata"]["name"] == "dovetail-scheduler"
    )
    container = container_of(pod, "kube-scheduler")
    assert container["image"] == "registry.k8s.io/kube-scheduler:v1.33.4"
    assert not [flag for flag in container["command"] if "feature-gates" in flag]


def test_the_extender_of_a_control_plane_host_gets_its_pod_as_the_page_says(applied: Applied, tmp_path: Path) -> None:
    """The namespace as it is refuses a Pod in the host's network; as the page's kustomization labels it, it does not."""
    page = (MANIFESTS / "scheduler" / "README.md").read_text(encoding="utf-8")
    blocks = [text.removeprefix("yaml") for text in page.split("```")[1::2]]
    (block,) = (text for text in blocks if "- control-plane-extender.yaml" in text)
    (labelled,) = (text for text in blocks if "../../namespace" in text)
    example = (MANIFESTS / "examples" / "control-plane-extender.yaml").read_text(encoding="utf-8")
    directory = tmp_path / "mine"
    directory.mkdir()
    (directory / "control-plane-extender.yaml").write_text(example.replace("CONTROL-PLANE-HOSTS", "10.0.1.0"), "utf-8")
    shutil.copy(MANIFESTS / "overlays" / "aws" / "provisioner.yaml", directory)
    overlays = [
        re.sub(r"\.\./\.\./(base|components/aws|namespace)", lambda found: _relative(found[1], directory), text)
        for text in (block, labelled)
    ]
    documents, (namespace,) = (_rendered(applied, directory, yaml.safe_load(text)) for text in overlays)
    template = next(one for one in documents if one["kind"] == "DaemonSet")["spec"]["template"]
    metadata = {**template["metadata"], "name": "extender"}
    pod = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
    run, dry = applied.cluster.kubectl, ("--dry-run=server", "--validate=strict", "-f", "-")
    other = {**namespace, "metadata": {**namespace["metadata"], "name": "control-plane"}}
    run("create", "-f", "-", stdin=json.dumps(other))
    for name in (NAMESPACE, "control-plane"):
        run("-n", name, "create", "serviceaccount", template["spec"]["serviceAccountName"])
    with pytest.raises(StateError, match="violates PodSecurity"):
        run("-n", NAMESPACE, "create", *dry, stdin=pod)
    run("-n", "control-plane", "create", *dry, stdin=pod)
    policy = next(one for one in documents if one["metadata"]["name"] == "provisioner-from-control-plane")
    run("apply", *dry, stdin=json.dumps(policy))


def test_with_cert_manager_nobody_of_ours_writes_certificates(applied: Applied, tmp_path: Path) -> None:
    directory = tmp_path / "mine"
    documents = _rendered(
        applied,
        directory,
        {
            "resources": [_relative("overlays/kwok", directory)],
            "components": [_relative("components/cert-manager", directory)],
        },
    )
    by_name = {(one["kind"], one["metadata"]["name"]): one for one in documents}
    certificate = by_name["Certificate", "dovetail-webhook"]
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        annotations = by_name[kind, "dovetail-webhook"]["metadata"]["annotations"]
        assert annotations == {"cert-manager.io/inject-ca-from": f"{NAMESPACE}/{certificate['metadata']['name']}"}
    assert certificate["spec"]["secretName"] == "dovetail-webhook-tls"
    assert ("Secret", "dovetail-webhook-tls") not in by_name
    assert [name for kind, name in by_name if kind == "Lease"] == ["karpenter-leader-election"]


def test_a_webhook_that_may_write_nothing_serves(applied: Applied, tmp_path: Path) -> None:
    """Under the roles of components/webhook-read-only, beside the one that made the certificate and put the bundle in."""
    directory = tmp_path / "mine"
    components = [_relative("components/webhook-read-only", directory)]
    documents = _rendered(
        applied, directory, {"resources": [_relative("overlays/kwok", directory)], "components": components}
    )
    name = "dovetail-webhook-reader"
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE}}
    made = [account]
    for one in documents:
        if one["metadata"]["name"] == "dovetail-webhook" and one["kind"] in ROLES:
            one["metadata"]["name"] = name
            for subject in one.get("subjects", ()):
                subject["name"] = name
            if "roleRef" in one:
                one["roleRef"]["name"] = name
            made.append(one)
    assert len(made) == 5
    applied.cluster.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": made}))
    (deployed,) = (
        one for one in documents if one["metadata"]["name"] == "dovetail-webhook" and one["kind"] == "Deployment"
    )
    arguments = deployed["spec"]["template"]["spec"]["containers"][0]["args"]
    port, metrics = free_port(), free_port()
    kubeconfig = service_account_kubeconfig(applied.cluster, NAMESPACE, name)
    added = [f"--bind=127.0.0.1:{port}", f"--metrics-bind=127.0.0.1:{metrics}", f"--cert-dir={tmp_path / 'serving'}"]
    line = [
        sys.executable,
        "-m",
        "provisioner.cli.main",
        *expanded(arguments, NAMESPACE),
        *added,
        f"--kubeconfig={kubeconfig}",
    ]
    environment = {"PYTHONPATH": str(REPOSITORY), "POD_NAMESPACE": NAMESPACE, "POD_NAME": "reader-0"}
    applied.cluster.start_program("webhook-reader", line, environment)
    try:
        page = f"http://127.0.0.1:{metrics}/readyz"
        eventually(lambda: answers(page), lambda: f"ready\n{applied.log('webhook-reader')[-2000:]}", READY_SECONDS, 0.2)
        assert "forbidden" not in applied.log("webhook-reader").lower()
    finally:
        applied.cluster.stop("webhook-reader")


ROLES = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


# --- priority and fairness -------------------------------------------------------------------------------------------

FLOWS = {
    ("dovetail-provisioner", "/api/v1/pods?limit=1"): "dovetail",
    ("dovetail-provisioner", "/version"): "dovetail",
    (
        "dovetail-provisioner",
        f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/karpenter-leader-election",
    ): "dovetail-leader-election",
    ("dovetail-webhook", "/api/v1/namespaces?limit=1"): "dovetail",
    (
        "dovetail-webhook",
        f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/dovetail-certs",
    ): "dovetail-leader-election",
    ("dovetail-scheduler", "/api/v1/nodes?limit=1"): "dovetail-scheduler",
    (
        "dovetail-scheduler",
        f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/dovetail-scheduler",
    ): "dovetail-scheduler-leader-election",
    ("default", "/version"): "service-accounts",
}


@pytest.fixture
def fair(applied: Applied) -> Iterator[str]:
    """A second API server of the same cluster, one that counts requests; the first lets all of them through."""
    layout = Layout(applied.cluster.dir, {**applied.cluster.ports, "kube-apiserver": free_port()})
    changed = {
        "enable-priority-and-fairness": "true",
        "max-requests-inflight": "400",
        "max-mutating-requests-inflight": "200",
    }
    argv = [*command("kube-apiserver", layout), *(f"--{flag}={value}" for flag, value in changed.items())]
    applied.cluster.start_program("fair-apiserver", argv)
    url = layout.url("kube-apiserver", "https")
    try:
        eventually(lambda: _headers(applied, url, "default", "/readyz"), "a second API server", 60.0, 0.5)
        yield url
    finally:
        applied.cluster.stop("fair-apiserver")


def _headers(run: Applied, url: str, account: str, path: str) -> dict[str, str]:
    """Headers of the answer to this account; empty where there is none."""
    text = service_account_kubeconfig(run.cluster, NAMESPACE, account).read_text(encoding="utf-8")
    token = yaml.safe_load(text)["users"][0]["user"]["token"]
    context = ssl.create_default_context(cadata=run.cluster.ca.certificate_pem.decode())
    request = urllib.request.Request(f"{url}{path}", headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=5, context=context) as answer:
            return {key.lower(): value for key, value in answer.headers.items()}
    except OSError:
        return {}


def test_requests_of_each_account_wait_in_the_queues_of_its_flow_schema(applied: Applied, fair: str) -> None:
    uids = {one["metadata"]["uid"]: one["metadata"]["name"] for one in applied.items("flowschemas")}

    def flows() -> dict[tuple[str, str], str]:
        found = {key: _headers(applied, fair, *key).get("x-kubernetes-pf-flowschema-uid", "") for key in FLOWS}
        return {key: uids.get(uid, uid) for key, uid in found.items()}

    eventually(lambda: flows() == FLOWS, lambda: f"flow schemas {flows()}", 30.0, 1.0)
    for one in applied.items("flowschemas"):
        dangling = [each for each in one["status"].get("conditions", ()) if each["type"] == "Dangling"]
        assert all(each["status"] == "False" for each in dangling), one["metadata"]["name"]
