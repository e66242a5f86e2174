"""Command lines of the control plane: loopback only, right ports, right files."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from provisioner.lab.devcluster.components import (
    COMPONENTS,
    Layout,
    command,
    ports_of,
    scheduler_document,
)
from provisioner.lab.devcluster.ports import PORT_NAMES

PORTS = {name: 20000 + number for number, name in enumerate(PORT_NAMES)}
LAYOUT = Layout(Path("/cluster"), PORTS)


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_component_runs_the_linked_program_on_its_own_ports(component: str) -> None:
    argv = command(component, LAYOUT)
    assert argv[0] == f"/cluster/bin/{component}"
    for name in ports_of(component):
        assert any(str(PORTS[name]) in argument for argument in argv)


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_component_listens_on_loopback_only(component: str) -> None:
    text = " ".join(command(component, LAYOUT))
    assert "0.0.0.0" not in text
    listens = {
        "etcd": "--listen-client-urls=http://127.0.0.1:",
        "kwok": "--server-address=127.0.0.1:",
    }.get(component, "--bind-address=127.0.0.1")
    assert listens in text


FLAGS = {
    "service account admission is left on": ("kube-apiserver", "--disable-admission-plugins", False),
    "tokens can be signed": ("kube-apiserver", "--service-account-signing-key-file=", True),
    "authorization is by RBAC": ("kube-apiserver", "--authorization-mode=Node,RBAC", True),
    "extension servers can be authenticated": (
        "kube-apiserver",
        "--requestheader-client-ca-file=",
        True,
    ),
    "nobody publishes a loopback endpoint": (
        "kube-apiserver",
        "--endpoint-reconciler-type=none",
        True,
    ),
    "load is not queued": ("kube-apiserver", "--enable-priority-and-fairness=false", True),
    "batching, which hides nodes from the extender, is off": (
        "kube-scheduler",
        "--feature-gates=OpportunisticBatching=false",
        True,
    ),
    "only fake nodes are kwok's": (
        "kwok",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        True,
    ),
    "etcd does not wait for the disk": ("etcd", "--unsafe-no-fsync", True),
}


@pytest.mark.parametrize(("component", "flag", "there"), FLAGS.values(), ids=FLAGS)
def test_flags(component: str, flag: str, there: bool) -> None:
    assert any(argument.startswith(flag) for argument in command(component, LAYOUT)) is there


def test_the_controllers_that_tests_rely_on_are_named_once_each() -> None:
    (flag,) = [a for a in command("kube-controller-manager", LAYOUT) if a.startswith("--controllers=")]
    names = flag.removeprefix("--controllers=").split(",")
    assert len(names) == len(set(names))
    wanted = [
        "node-lifecycle",
        "taint-eviction",
        "pod-garbage-collector",
        "disruption",
        "replicaset",
        "daemonset",
        "namespace",
    ]
    assert {f"{name}-controller" for name in wanted} <= set(names)
    assert all(name.endswith("-controller") for name in names)


def test_leases_of_fake_nodes_last_as_long_as_the_grace_of_the_node_controller() -> None:
    assert "--node-monitor-grace-period=40s" in command("kube-controller-manager", LAYOUT)
    assert "--node-lease-duration-seconds=40" in command("kwok", LAYOUT)


def test_an_audit_log_is_written_where_it_is_asked_for() -> None:
    asked = command("kube-apiserver", Layout(Path("/cluster"), PORTS, audit=True))
    assert "--audit-log-path=/cluster/logs/audit.log" in asked
    assert not [flag for flag in command("kube-apiserver", LAYOUT) if "audit" in flag]


@pytest.mark.parametrize("extender", [True, False])
def test_the_scheduler_is_told_of_the_extender_at_its_reserved_port(extender: bool) -> None:
    document: dict[str, Any] = scheduler_document(Layout(Path("/cluster"), PORTS, extender=extender))
    urls = [entry["urlPrefix"] for entry in document.get("extenders", [])]
    assert urls == ([f"http://127.0.0.1:{PORTS['extender']}"] if extender else [])


def test_the_only_scheduler_outlives_a_slow_api_server() -> None:
    election = cast("dict[str, str]", scheduler_document(LAYOUT)["leaderElection"])
    assert (election["leaseDuration"], election["renewDeadline"]) == ("45s", "35s")


def test_an_unknown_component_is_refused() -> None:
    with pytest.raises(KeyError):
        command("kubelet", LAYOUT)


GATED = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")


@pytest.mark.parametrize("component", COMPONENTS)
def test_pod_groups_are_a_gate_of_the_three_programs_that_must_agree(component: str) -> None:
    plain, gangs = (
        [one for one in command(component, replace(LAYOUT, gates=gates)) if one.startswith("--feature-gates=")]
        for gates in ("default", "gangs")
    )
    wanted = [one for one in ("OpportunisticBatching=false",) if component == "kube-scheduler"]
    assert plain == ([f"--feature-gates={wanted[0]}"] if wanted else [])
    wanted += ["GenericWorkload=true", "TopologyAwareWorkloadScheduling=true"] if component in GATED else []
    assert gangs == ([f"--feature-gates={','.join(wanted)}"] if wanted else [])


def test_with_pod_groups_their_api_is_served_and_their_finalizer_is_removed() -> None:
    gangs = replace(LAYOUT, gates="gangs")
    served = "--runtime-config=scheduling.k8s.io/v1beta1=true,scheduling.k8s.io/v1alpha3=true"
    assert served in command("kube-apiserver", gangs)
    assert served not in command("kube-apiserver", LAYOUT)
    for layout, runs in ((gangs, True), (LAYOUT, False)):
        assert ("podgroup-protection-controller" in " ".join(command("kube-controller-manager", layout))) is runs
