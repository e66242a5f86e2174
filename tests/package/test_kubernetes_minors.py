"""The demo on a control plane of every older minor that Dovetail is tested with.

Built from the Go module proxy; Go's checksum database vouches for what it gives. The newest minor is that of every other test.
"""

import io
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from provisioner.lab.demo import run_demo
from provisioner.lab.devcluster import binaries, components, toolchain, versions, wrapper
from provisioner.lab.devcluster.building import GoBuild
from provisioner.lab.devcluster.progress import SILENT

pytestmark = [pytest.mark.package, pytest.mark.plane, pytest.mark.timeout(3600)]

PLANNED_PERCENT = 90.0
OLDER = "older"  # as a key of `versions.PLANES`
ETCD_OF = "1.35"  # the oldest of them
BATCHING_SINCE = "v1.35"  # its feature gate is unknown before: manifests/components/scheduler-before-1.35


@pytest.fixture(params=versions.OLDER)
def older(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """This version of Kubernetes is what a dev cluster runs; etcd is that of the oldest minor that is built, and kwok stays."""
    version: str = request.param
    env = {**os.environ, versions.VARIABLE: ETCD_OF}
    kept = tmp_path / "kept"
    kept.mkdir()
    for name, path in binaries.find(GoBuild(env), env, names=("etcd", "kwok", versions.STAGES)).paths.items():
        (kept / name).symlink_to(path)
    shutil.copytree(versions.WRAPPERS, tmp_path / "go")
    monkeypatch.setattr(versions, "WRAPPERS", tmp_path / "go")
    plane = versions.Plane(version, versions.PLANES[ETCD_OF].etcd, "plane-older")
    monkeypatch.setitem(versions.PLANES, OLDER, plane)
    monkeypatch.setenv(versions.VARIABLE, OLDER)
    ours = [program for program in plane.programs if program.name != "etcd"]
    compiler = toolchain.machine_go(os.environ)
    assert compiler is not None
    wrapper.regenerate(plane.module, {"k8s.io/kubernetes": version}, ours, compiler.go, os.environ)
    found = binaries.find(GoBuild(os.environ, compiler), {**os.environ, binaries.VARIABLE: str(kept)})
    for name, path in found.paths.items():
        if not (kept / name).exists():
            (kept / name).symlink_to(path)
    monkeypatch.setenv(binaries.VARIABLE, str(kept))
    if version < BATCHING_SINCE:
        monkeypatch.setattr(components, "FEATURE_GATES", "AllAlpha=false")
    return version


def test_pods_get_their_planned_nodes(older: str, tmp_path: Path) -> None:
    output = io.StringIO()
    outcome = run_demo(Console(file=output, width=200), 100, tmp_path, SILENT)
    assert replace(outcome, placement_goal=PLANNED_PERCENT).problems() == (), f"{older}: {output.getvalue()}"
