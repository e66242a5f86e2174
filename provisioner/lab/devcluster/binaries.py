"""Finding the programs of a control plane, and making the missing ones.

Looked for one by one, in this order: the directory in $DOVETAIL_DEV_BIN, this user's cache (its key: versions, Go
version and recipe), then made into that cache, by a build from the Go module proxy or, if asked, by downloading the
official release. What is found is run once to see that it runs.
"""

import functools
import os
import subprocess
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from provisioner.lab.devcluster import paths, versions
from provisioner.lab.devcluster.errors import BinaryError
from provisioner.lab.devcluster.progress import SILENT, StepProgress
from provisioner.lab.devcluster.teardown import locked

VARIABLE: Final = "DOVETAIL_DEV_BIN"


class BinarySource(Protocol):
    """A way to make artifacts: a build or a download."""

    def key(self) -> str:
        """What the cache directory is named after: equal keys, equal artifacts."""
        ...

    def make(self, names: Iterable[str], directory: Path, progress: StepProgress) -> None:
        """Make these artifacts in a directory, each moved into place whole.

        Raises:
            DevClusterError: one cannot be made.
        """
        ...


@dataclass(frozen=True)
class Binaries:
    """Where each artifact was found.

    Attributes:
        paths: file by artifact name, for every one that was asked for.
    """

    paths: Mapping[str, Path] = field(default_factory=dict)

    def link(self, directory: Path) -> None:
        """Fill a directory with symbolic links to the programs; replaces older links."""
        directory.mkdir(parents=True, exist_ok=True)
        for name in versions.PROGRAM_NAMES:
            if name not in self.paths:
                continue
            partial = directory / f".{name}.partial"
            partial.unlink(missing_ok=True)
            partial.symlink_to(self.paths[name])
            partial.replace(directory / name)

    @property
    def stages(self) -> Path:
        """The stages that kwok comes with."""
        return self.paths[versions.STAGES]


def find(
    source: BinarySource,
    env: Mapping[str, str],
    progress: StepProgress = SILENT,
    names: Collection[str] = versions.ARTIFACTS,
) -> Binaries:
    """Artifacts, made where missing. A second call takes nothing from the network.

    Two processes never make artifacts at once: the second waits, then finds them made.

    Raises:
        BinaryError: one does not run, or $DOVETAIL_DEV_BIN is no directory.
        DevClusterError: one cannot be made.
    """
    chosen = _chosen_directory(env)
    found = {} if chosen is None else _present(chosen, names)
    wanted = [name for name in names if name not in found]
    if wanted:
        cache = paths.cache_root(env) / "devcluster" / source.key()
        cached = _present(cache, wanted)
        if len(cached) < len(wanted):
            with locked(cache.with_name(f".{cache.name}.lock")):
                cached = _present(cache, wanted)  # another process may have made them meanwhile
                missing = [name for name in wanted if name not in cached]
                if missing:
                    cache.mkdir(parents=True, exist_ok=True)
                    source.make(missing, cache, progress)
                    cached = _present(cache, wanted)
        found |= cached
    verify(found, versions.chosen(env))
    return Binaries({name: found[name] for name in names})


def verify(found: Mapping[str, Path], plane: versions.Plane) -> None:
    """Run each program once for its version; an unchanged file is run once a process.

    Raises:
        BinaryError: one cannot be executed, fails, or is of another Kubernetes minor; names file and cure.
    """
    for program in (*plane.programs, *versions.TOOLS):
        if program.name not in found:
            continue
        path = found[program.name]
        file = path.stat()
        _verify(program, path, (file.st_ino, file.st_size, file.st_mtime_ns))


@functools.lru_cache(maxsize=64)
def _verify(program: versions.Binary, path: Path, _identity: tuple[int, int, int]) -> None:
    fix = f"Delete {path} and run `dovetail dev up` again to recreate it"
    try:
        result = subprocess.run([path, *program.check], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BinaryError(f"{path} does not run ({error})", fix) from error
    if result.returncode != 0:
        reason = (result.stderr or result.stdout).strip().splitlines()[:1]
        raise BinaryError(f"{path} fails with exit status {result.returncode} ({' '.join(reason)})", fix)
    minor = ".".join(program.version.removeprefix("v").split(".")[:2]) + "."
    if minor not in result.stdout and program.check != ("--help",):
        said = " ".join(result.stdout.split())[:80]
        raise BinaryError(
            f"{path} is not version {minor}x but says {said!r}",
            f"Put {program.name} {program.version} there, or remove it",
        )


def _chosen_directory(env: Mapping[str, str]) -> Path | None:
    text = env.get(VARIABLE, "")
    if not text:
        return None
    directory = Path(text)
    if not directory.is_dir():
        raise BinaryError(
            f"{VARIABLE}={text} is not a directory",
            f"Unset {VARIABLE}, or let it name the directory with "
            + ", ".join(name for name in versions.ARTIFACTS if name != versions.STAGES),
        )
    return directory.absolute()


def _present(directory: Path, names: Iterable[str]) -> dict[str, Path]:
    found = {}
    for name in names:
        path = directory / name
        if not path.is_file():
            continue
        if name != versions.STAGES and not os.access(path, os.X_OK):
            raise BinaryError(
                f"{path} is not executable",
                f"Run `chmod +x {path}`, or delete the file and run `dovetail dev up` again",
            )
        found[name] = path
    return found
