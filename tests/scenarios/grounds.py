"""What a group of rows finds on the cluster before its programs start; see `row.GROUPS`."""

import contextlib
import json
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

import yaml

from provisioner.apis import names
from provisioner.apis.conversion.definitions import BETA, documents
from provisioner.apis.conversion.ownership import KARPENTER_LEASE
from provisioner.kube.client import Client
from provisioner.kube.errors import NotFound
from provisioner.kube.resources import LEASES
from provisioner.lab.harness.aws import CLUSTER_NAME
from provisioner.lab.harness.session import WEBHOOK, Session
from provisioner.lab.harness.workload import manifests
from tests.support.eventually import eventually
from webhook.policy import binding, policy

HOME: Final = "dovetail-system"
DEFINITIONS: Final = tuple(f"{one.plural}.{one.group}" for one in BETA.values())
DEFAULT_OS: Final = "linux"
"""What the defaults of the cluster say of `dovetail.dev/os`."""
OLDER: Final = "older-than-the-component"
"""A Provisioner that was there before the component."""
KEPT: Final[Mapping[str, Mapping[str, str]]] = {
    "ec2nodeclasses.karpenter.k8s.aws": {"kustomize.toolkit.fluxcd.io/name": "karpenter"},
    "nodeclaims.karpenter.sh": {"argocd.argoproj.io/instance": "karpenter"},
    "nodepools.karpenter.sh": {"app.kubernetes.io/managed-by": "Helm"},
}
"""The labels by which Flux, Argo CD and Helm keep definitions."""
SPREADING: Final = "spreading-scheduler"
"""A profile of kube-scheduler that spreads what says nothing of its spread."""
SPREAD: Final = json.dumps(
    {
        "podTopologySpread": {
            "defaultConstraints": [
                {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
                for key in (names.HOSTNAME_LABEL, names.ZONE_LABEL)
            ]
        }
    }
)
"""What the provisioner is told of it, by `--scheduler-config`."""
_COMPONENT: Final = manifests() / "components" / "conversion"


def nothing(_: Session) -> None:
    """Most groups need nothing."""


def defaults(session: Session) -> None:
    """The ConfigMap with the defaults of the cluster is there."""
    _apply(session, _config_map(os=DEFAULT_OS))


def spreading_scheduler(session: Session) -> None:
    """kube-scheduler has the profile with the default constraints; it keeps it."""
    session.cluster.stop("kube-scheduler")
    path = session.cluster.dir / "kube-scheduler.json"
    configuration = json.loads(path.read_text(encoding="utf-8"))
    arguments = json.loads(SPREAD)["podTopologySpread"] | {"defaultingType": "List"}
    profile = {"schedulerName": SPREADING, "pluginConfig": [{"name": "PodTopologySpread", "args": arguments}]}
    path.write_text(json.dumps(configuration | {"profiles": [*configuration["profiles"], profile]}), encoding="utf-8")
    session.cluster.start("kube-scheduler")


def admission_policy(session: Session) -> None:
    """The admission policy stamps pods as well as the webhook; it was seen to do so without the webhook."""
    session.programs.stop(WEBHOOK)
    _apply(session, _config_map(), policy(), binding())
    containers = [{"name": "main", "image": "none.invalid/none"}]
    pod = {
        "metadata": {"name": "probe", "annotations": {names.STAMP_ARCH: "arm64"}},
        "spec": {"containers": containers},
    }

    def is_stamped() -> bool:
        answer = session.client.raw("POST", "/api/v1/namespaces/default/pods", pod, {"dryRun": "All"})
        return "affinity" in json.loads(answer)["spec"]

    eventually(is_stamped, "the policy stamps a pod", 60.0, 0.5)


def kept_and_silent(session: Session) -> None:
    """kube-scheduler has stopped, and the definitions of the component lie over those that others keep; the policy and the defaults are gone."""
    for one in (binding(), policy()):
        session.cluster.kubectl("delete", one["kind"], one["metadata"]["name"], "--ignore-not-found")
    session.cluster.kubectl("-n", HOME, "delete", "configmap", names.DEFAULTS_CONFIGMAP, "--ignore-not-found")
    _component(session, KEPT)
    session.cluster.stop("kube-scheduler")


def beside_karpenter(session: Session) -> None:
    """Karpenter itself leads in kube-system, and nobody else keeps the definitions of the component. A Provisioner is older than the component."""
    karpenter_leads(session.client)
    _old_versions(session)  # after the Lease: the webhook of the last group may run


def old_versions(session: Session) -> None:
    """The component serves old versions. A Provisioner is older than it."""
    _old_versions(session)
    karpenter_ends(session.client)


def karpenter_leads(client: Client) -> None:
    """A Karpenter in kube-system takes the lead, and renews its Lease until `karpenter_ends`."""
    document = _metadata("coordination.k8s.io/v1", "Lease", KARPENTER_LEASE, "kube-system")
    spec = {"holderIdentity": "karpenter-7d9c", "leaseDurationSeconds": 15}
    client.create(LEASES, document | {"spec": spec}, "kube-system")

    def renew() -> None:
        count = 0
        with contextlib.suppress(NotFound):  # until it has ended
            while True:
                count += 1
                spec = {"renewTime": f"2026-01-01T00:00:{count % 60:02}.{count:06}Z"}  # by a clock that is far behind
                client.patch(LEASES, KARPENTER_LEASE, {"spec": spec}, "kube-system")
                time.sleep(2.0)

    threading.Thread(target=renew, name="karpenter", daemon=True).start()


def karpenter_ends(client: Client) -> None:
    """Its Lease is deleted; nothing happens where there is none."""
    with contextlib.suppress(NotFound):
        client.delete(LEASES, KARPENTER_LEASE, "kube-system")


def old_provisioner(name: str, **spec: Any) -> dict[str, Any]:
    """A Provisioner for the emulated EC2, as its users wrote them."""
    of = {"karpenter.sh/discovery": CLUSTER_NAME}
    return {
        "apiVersion": "karpenter.sh/v1alpha5",
        "kind": "Provisioner",
        "metadata": {"name": name},
        "spec": {
            "provider": {
                "amiFamily": "Bottlerocket",
                "instanceProfile": f"{CLUSTER_NAME}-node",
                "subnetSelector": of,
                "securityGroupSelector": of,
            },
            **spec,
        },
    }


def _old_versions(session: Session) -> None:
    session.cluster.start("kube-scheduler")
    _component(session, {})
    marker = ("-n", HOME, "get", "configmap", "dovetail-conversion", "--ignore-not-found", "-o", "name")
    if not session.cluster.kubectl(*marker):
        session.cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(old_provisioner(OLDER)))
        time.sleep(1.1)  # creation timestamps have no parts of a second
        session.cluster.kubectl("apply", "-f", str(_COMPONENT / "since.yaml"))


def _component(session: Session, labels: Mapping[str, Mapping[str, str]]) -> None:
    """The definitions of the component, with the address of the webhook's process, and these labels alone, by definition."""
    url = f"https://127.0.0.1:{session.cluster.ports['webhook']}/convert"
    made = list(documents({"url": url}).values())
    for one in made:
        one["metadata"] |= {"labels": dict(labels.get(one["metadata"]["name"], {}))}
    text = "---\n".join(map(yaml.safe_dump, made))
    session.cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)
    session.cluster.await_definitions(*(one["metadata"]["name"] for one in made))


def _metadata(api_version: str, kind: str, name: str, namespace: str) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": namespace}}


def _config_map(**data: str) -> dict[str, Any]:
    return _metadata("v1", "ConfigMap", names.DEFAULTS_CONFIGMAP, HOME) | {"data": data}


def _apply(session: Session, *made: dict[str, Any]) -> None:
    session.cluster.kubectl("apply", "-f", "-", stdin="---\n".join(map(yaml.safe_dump, made)))
