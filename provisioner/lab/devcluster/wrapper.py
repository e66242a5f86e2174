"""Writing the wrapper modules anew, after a version in `versions` was changed: python -m provisioner.lab.devcluster.wrapper.

k8s.io/kubernetes requires its staging modules at the fictitious v0.0.0 and replaces them by paths of its own tree,
which a consumer does not have. So the wrapper replaces all of them by what was published for the same release. The
list changes between minors and is therefore read from the go.mod of that release, never typed.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from provisioner.lab.devcluster import toolchain, versions
from provisioner.lab.devcluster.errors import BuildError, DevClusterError, ToolchainError
from provisioner.lab.devcluster.processes import output_of

_KUBERNETES: Final = "k8s.io/kubernetes"
_REQUIRES: Final = {
    **{
        plane.module: {_KUBERNETES: plane.kubernetes, "go.etcd.io/etcd/server/v3": plane.etcd}
        for plane in versions.PLANES.values()
    },
    "kwok": {"sigs.k8s.io/kwok": versions.KWOK},
    "metrics": {"sigs.k8s.io/metrics-server": versions.METRICS},
    "charts": {
        "helm.sh/helm/v4": versions.HELM,
        "github.com/helm-unittest/helm-unittest": versions.UNITTEST,
        "github.com/yannh/kubeconform": versions.KUBECONFORM,
    },
    "prometheus": {"github.com/prometheus/prometheus": versions.PROMETHEUS},
}
_JSONPATH: Final = "github.com/vmware-labs/yaml-jsonpath"


def staging_replacements(go_mod: Mapping[str, Any], release: str) -> dict[str, str]:
    """Published version of each staging module of a Kubernetes release, by module path.

    Args:
        go_mod: go.mod of k8s.io/kubernetes as `go mod edit -json` prints it.
        release: its version, v1.X.Y; the modules are published as v0.X.Y.
    """
    version = f"v0.{release.removeprefix('v1.')}"
    return {
        entry["Old"]["Path"]: version
        for entry in go_mod.get("Replace") or ()
        if entry["New"]["Path"].startswith("./staging/")
    }


def regenerate(
    module: str, requires: Mapping[str, str], programs: Sequence[versions.Binary], go: Path, env: Mapping[str, str]
) -> None:
    """Write go.mod and go.sum of one wrapper module anew; asks the module proxy and the checksum database.

    Args:
        module: its directory below `versions.WRAPPERS`.
        requires: version by Go module.
        programs: those of them that name this module are built in it.
        go: the compiler.
        env: environment variables.

    Raises:
        BuildError: Go fails; the committed files are left as they were.
    """
    with tempfile.TemporaryDirectory(prefix="dovetail-go-") as scratch:

        def run(*arguments: str) -> str:
            return _go(go, arguments, Path(scratch), env)

        (versions.WRAPPERS / module).mkdir(exist_ok=True)
        run("mod", "init", f"dovetail.dev/devcluster/{module}")
        run("mod", "edit", f"-go={'.'.join(map(str, versions.GO_MINIMUM))}")
        if release := requires.get(_KUBERNETES):
            name = f"{_KUBERNETES}@{release}"
            location = json.loads(run("mod", "download", "-json", name))["GoMod"]
            document = json.loads(run("mod", "edit", "-json", location))
            for path, version in sorted(staging_replacements(document, release).items()):
                run("mod", "edit", f"-replace={path}={path}@{version}")
        if module == "charts":  # of a fork, with what helm-unittest needs
            run("mod", "edit", f"-replace={_JSONPATH}=github.com/helm-unittest/yaml-jsonpath@v0.4.0")
        for path, version in sorted(requires.items()):
            run("mod", "edit", f"-require={path}@{version}")
        built = [program for program in programs if program.module == module]
        packages, tags = sorted({program.package for program in built}), built[0].tags
        for package in packages:
            run("mod", "edit", f"-tool={package}")  # keeps the requirement without a tools.go
        run(
            "list", "-mod=mod", f"-tags={tags}", "-deps", *packages
        )  # resolves what the builds need; not `tidy`: that wants tests too
        for file in ("go.mod", "go.sum"):
            shutil.copyfile(Path(scratch) / file, versions.WRAPPERS / module / file)


def main(wanted: Sequence[str]) -> int:
    """Write wrapper modules anew: those of these names, or all."""
    try:
        compiler = toolchain.machine_go(os.environ)
        if compiler is None:
            raise ToolchainError("no Go of the needed version on this machine", "Install Go")
        programs = [*versions.TOOLS, *(program for plane in versions.PLANES.values() for program in plane.programs)]
        for module in sorted(wanted or _REQUIRES):
            regenerate(module, _REQUIRES[module], programs, compiler.go, os.environ)
    except DevClusterError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _go(go: Path, arguments: Sequence[str], directory: Path, env: Mapping[str, str]) -> str:
    env = {**env, "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off", "CGO_ENABLED": "0"}
    result = output_of([go, *arguments], env, where=directory)
    if result.returncode != 0:
        raise BuildError(
            f"go {' '.join(arguments)[:120]} failed ({result.stderr.strip()[-300:]})", "See that the versions exist"
        )
    return result.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
