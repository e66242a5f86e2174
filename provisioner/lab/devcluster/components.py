"""Command lines and configuration files of the control plane's programs; pure.

Start order is the order of `Layout.components`; stopping goes the other way, etcd last: an API server whose etcd went
first ignores SIGTERM for minutes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from provisioner.lab.devcluster.kubescheduler import (
    FEATURE_GATES,
    scheduler_configuration,
)
from provisioner.lab.devcluster.ports import LOOPBACK
from provisioner.lab.devcluster.versions import METRICS_SERVER

COMPONENTS: Final = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
)
"""Programs of every control plane, in the order in which they start."""

HPA_SYNC_SECONDS: Final = 5
"""How often the HPA controller looks, with metrics-server; 15 by default, but the scrapes come every 10 s here."""

CONTROLLERS: Final = (
    "clusterrole-aggregation",
    "cronjob",
    "daemonset",
    "deployment",
    "disruption",
    "endpointslice",
    "ephemeral-volume",
    "garbage-collector",
    "horizontal-pod-autoscaler",
    "job",
    "namespace",
    "node-lifecycle",
    "persistentvolume-attach-detach",
    "persistentvolume-binder",
    "persistentvolume-protection",
    "persistentvolumeclaim-protection",
    "pod-garbage-collector",
    "replicaset",
    "resourceclaim",
    "resourcequota",
    "root-ca-certificate-publisher",
    "serviceaccount",
    "serviceaccount-token",
    "statefulset",
    "taint-eviction",
    "ttl-after-finished",
    "validatingadmissionpolicy-status",
)
"""What kube-controller-manager runs, without the suffix -controller. Not: node IPAM, load balancers, CSR signers."""

ENVIRONMENT: Final = {"GOGC": "400"}
"""Of every component: memory for CPU. Measured: a seventh less CPU time for 1,000 pods, on 2 cores that are the bottleneck."""

Gates = Literal["default", "gangs"]
"""Feature gates of a control plane: as Kubernetes has them, or with those of PodGroups."""

_GANG_GATES: Final = "GenericWorkload=true,TopologyAwareWorkloadScheduling=true"
_GANG_VERSIONS: Final = "scheduling.k8s.io/v1beta1=true,scheduling.k8s.io/v1alpha3=true"
_GANG_CONTROLLER: Final = "podgroup-protection"  # without it no PodGroup ever goes away

SERVICE_CIDR: Final = "10.96.0.0/16"
SERVICE_ADDRESS: Final = "10.96.0.1"  # of the Service `kubernetes`, the first of the range
ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
FAKE_NODE_SELECTOR: Final = "kwok.x-k8s.io/node=fake"
NODE_GRACE_SECONDS: Final = 40
"""A node that misses its lease for so long counts as unreachable; leases last as long and are renewed four times as often."""


@dataclass(frozen=True)
class Layout:
    """Where the parts of one cluster are.

    Attributes:
        ports: loopback port by name (`ports.PORT_NAMES`).
        extender: whether kube-scheduler is told of the extender.
        audit: whether the API server writes down who changed what.
        metrics: whether metrics-server is one of the components.
        gates: those of API server, controller manager and scheduler.
    """

    directory: Path
    ports: Mapping[str, int]
    extender: bool = True
    audit: bool = False
    metrics: bool = False
    gates: Gates = "default"

    @property
    def components(self) -> tuple[str, ...]:
        """The programs of this control plane, in the order in which they start."""
        return (*COMPONENTS, METRICS_SERVER) if self.metrics else COMPONENTS

    @property
    def binaries(self) -> Path:
        """Links to the programs; what `dovetail dev env` puts on PATH."""
        return self.directory / "bin"

    @property
    def pki(self) -> Path:
        """Certificates, keys and kubeconfigs of the components."""
        return self.directory / "pki"

    def url(self, name: str, scheme: str) -> str:
        """Where a port answers, as https://127.0.0.1:18006."""
        return f"{scheme}://{LOOPBACK}:{self.ports[name]}"

    def log(self, component: str) -> Path:
        """Log file of a component."""
        return self.directory / "logs" / f"{component}.log"

    def record(self, component: str) -> Path:
        """File that remembers the component's process."""
        return self.directory / "pids" / f"{component}.json"

    @property
    def audit_log(self) -> Path:
        """Where the API server writes who changed what: one JSON object (audit.k8s.io/v1 Event) a line."""
        return self.directory / "logs" / "audit.log"

    @property
    def audit_policy(self) -> Path:
        """What of it is written."""
        return self.directory / "audit-policy.json"

    @property
    def tokens(self) -> Path:
        """The API server's file of tokens of the cluster's own users."""
        return self.pki / "tokens.csv"

    def kubeconfig(self, user: str) -> Path:
        """Kubeconfig of one of our own users: `admin` or a component's name."""
        return self.pki / f"{user}.kubeconfig"


def command(component: str, layout: Layout) -> list[str]:
    """The command line of a component.

    Raises:
        KeyError: not one of `Layout.components`.
    """
    flags = {
        "etcd": _etcd,
        "kube-apiserver": _apiserver,
        "kube-controller-manager": _controller_manager,
        "kube-scheduler": _scheduler,
        "kwok": _kwok,
        METRICS_SERVER: _metrics_server,
    }[component](layout)
    return [str(layout.binaries / component), *flags]


def ports_of(component: str) -> tuple[str, ...]:
    """Names of the ports that a component listens on."""
    return ("etcd", "etcd-peer") if component == "etcd" else (component,)


_LEASE_TIMES: Final = {"leaseDuration": "45s", "renewDeadline": "35s"}
"""A scheduler whose Lease runs out ends itself, and no kubelet starts it again here: a busy machine may keep it waiting for long."""


def scheduler_document(layout: Layout) -> dict[str, object]:
    """The configuration file of this cluster's kube-scheduler."""
    return scheduler_configuration(
        extender=layout.url("extender", "http") if layout.extender else "",
        kubeconfig=str(layout.kubeconfig("kube-scheduler")),
        lease_times=_LEASE_TIMES,
    )


def scheduler_file(layout: Layout) -> Path:
    """Where that file is."""
    return layout.directory / "kube-scheduler.json"


def stages_file(layout: Layout) -> Path:
    """Where kwok's stages, upstream's and our own, are."""
    return layout.directory / "kwok-stages.yaml"


def _etcd(layout: Layout) -> list[str]:
    client, peer = layout.url("etcd", "http"), layout.url("etcd-peer", "http")
    return [
        f"--data-dir={layout.directory / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",  # a killed program loses nothing by it, only a crash of the machine does
        "--quota-backend-bytes=4294967296",
        "--log-level=warn",
    ]


def _apiserver(layout: Layout) -> list[str]:
    pki = layout.pki
    return [
        f"--etcd-servers={layout.url('etcd', 'http')}",
        f"--bind-address={LOOPBACK}",
        f"--advertise-address={LOOPBACK}",
        f"--secure-port={layout.ports['kube-apiserver']}",
        f"--cert-dir={pki}",
        *_certified(layout, "kube-apiserver"),
        f"--client-ca-file={pki / 'ca.crt'}",
        f"--token-auth-file={layout.tokens}",
        f"--requestheader-client-ca-file={pki / 'ca.crt'}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--service-account-key-file={pki / 'service-accounts.pub'}",
        f"--service-account-signing-key-file={pki / 'service-accounts.key'}",
        f"--service-account-issuer={ISSUER}",
        f"--service-cluster-ip-range={SERVICE_CIDR}",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
        "--endpoint-reconciler-type=none",  # the Service `kubernetes` may not point at a loopback address
        "--enable-priority-and-fairness=false",  # one tenant, and load that is meant
        "--max-requests-inflight=0",
        "--max-mutating-requests-inflight=0",
        # kube-scheduler has hundreds of calls under way; beyond the limit it opens a connection for each of them
        "--http2-max-streams-per-connection=5000",
        "--shutdown-send-retry-after=true",  # stops in 2 s; otherwise open watches hold it for a minute
        "--profiling=false",
        *_audit(layout),
        *_aggregation(layout),
        *_gates(layout),
        *([f"--runtime-config={_GANG_VERSIONS}"] if layout.gates == "gangs" else []),
    ]


def _gates(layout: Layout, *gates: str) -> list[str]:
    """These feature gates, and those of the cluster; API server, controller manager and scheduler must agree on the latter."""
    wanted = [*gates, *([_GANG_GATES] if layout.gates == "gangs" else [])]
    return [f"--feature-gates={','.join(wanted)}"] if wanted else []


def audit_document() -> Mapping[str, Any]:
    """The policy: every change, without bodies, once it is answered."""
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived", "ResponseStarted"],
        "rules": [{"level": "None", "verbs": ["get", "list", "watch"]}, {"level": "Metadata"}],
    }


def _audit(layout: Layout) -> list[str]:
    if not layout.audit:
        return []
    return [f"--audit-policy-file={layout.audit_policy}", f"--audit-log-path={layout.audit_log}"]


def _aggregation(layout: Layout) -> list[str]:
    """As whom the API server calls metrics-server; extension servers are told of the CA and this name in any case."""
    if not layout.metrics:
        return []
    return [
        f"--proxy-client-cert-file={layout.pki / 'front-proxy-client.crt'}",
        f"--proxy-client-key-file={layout.pki / 'front-proxy-client.key'}",
    ]


def _serving(layout: Layout, component: str, pair: str = "components") -> list[str]:
    """Where a component serves, with which certificate, and as whom it asks the API server who may."""
    kubeconfig = layout.kubeconfig(component)
    return [
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={layout.ports[component]}",
        f"--cert-dir={layout.pki}",
        *_certified(layout, pair),
    ]


def _certified(layout: Layout, pair: str) -> list[str]:
    return [f"--tls-cert-file={layout.pki / f'{pair}.crt'}", f"--tls-private-key-file={layout.pki / f'{pair}.key'}"]


def _controller_manager(layout: Layout) -> list[str]:
    controllers = (*CONTROLLERS, _GANG_CONTROLLER) if layout.gates == "gangs" else CONTROLLERS
    return [
        f"--kubeconfig={layout.kubeconfig('kube-controller-manager')}",
        *_serving(layout, "kube-controller-manager"),
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={layout.pki / 'service-accounts.key'}",
        f"--root-ca-file={layout.pki / 'ca.crt'}",
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
        "--node-monitor-period=1s",
        f"--node-monitor-grace-period={NODE_GRACE_SECONDS}s",
        "--pvclaimbinder-sync-period=2s",  # a claim that comes before its volume is seen waits for the next one, by default 15 s
        "--controllers=" + ",".join(f"{name}-controller" for name in controllers),
        "--profiling=false",
        *_gates(layout),
        *([f"--horizontal-pod-autoscaler-sync-period={HPA_SYNC_SECONDS}s"] if layout.metrics else []),
    ]


def _scheduler(layout: Layout) -> list[str]:
    return [
        f"--config={scheduler_file(layout)}",
        *_serving(layout, "kube-scheduler"),
        "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
        *_gates(layout, FEATURE_GATES),
    ]


def _kwok(layout: Layout) -> list[str]:
    return [
        f"--kubeconfig={layout.kubeconfig('kwok')}",
        f"--config={stages_file(layout)}",
        f"--manage-nodes-with-annotation-selector={FAKE_NODE_SELECTOR}",
        f"--node-ip={LOOPBACK}",
        f"--node-port={layout.ports['kwok']}",
        f"--server-address={LOOPBACK}:{layout.ports['kwok']}",  # by default it listens on every address
        f"--node-lease-duration-seconds={NODE_GRACE_SECONDS}",
        *_usage(layout),
    ]


def _usage(layout: Layout) -> list[str]:
    """What kwok needs to be scraped as the kubelet of its nodes."""
    if not layout.metrics:
        return []
    return ["--enable-crds=ClusterResourceUsage", *_certified(layout, "components")]


def _metrics_server(layout: Layout) -> list[str]:
    return [
        f"--kubeconfig={layout.kubeconfig(METRICS_SERVER)}",
        *_serving(layout, METRICS_SERVER, METRICS_SERVER),
        f"--kubelet-certificate-authority={layout.pki / 'ca.crt'}",
        "--kubelet-preferred-address-types=InternalIP",
        "--kubelet-use-node-status-port",
        "--kubelet-request-timeout=5s",
        "--metric-resolution=10s",  # the shortest that it takes
    ]
