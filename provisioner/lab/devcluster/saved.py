"""What a cluster remembers from one `up` to the next, in `cluster.json` of its directory."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from provisioner.lab.devcluster.components import Gates
from provisioner.lab.devcluster.errors import DevClusterError, StateError
from provisioner.lab.devcluster.pki import write_private
from provisioner.lab.devcluster.ports import PORT_NAMES
from provisioner.lab.devcluster.processes import Record


@dataclass(frozen=True)
class Saved:
    """The lasting part of a cluster.

    Attributes:
        extender: whether kube-scheduler is told of the extender.
        owner: the program that a temporary cluster lives and dies with; None for a lasting one.
        metrics: whether metrics-server is part of it.
        gates: which feature gates it has.
        minor: of Kubernetes, as in 1.37.
    """

    ports: Mapping[str, int]
    extender: bool
    owner: Record | None
    metrics: bool = False
    gates: Gates = "default"
    minor: str = ""

    def write(self, directory: Path) -> None:
        """Write it, atomically."""
        write_private(_file(directory), msgspec.json.format(msgspec.json.encode(self)))

    @property
    def is_abandoned(self) -> bool:
        """Whether it is temporary and its program is gone."""
        return self.owner is not None and not self.owner.is_alive()


def load(directory: Path) -> Saved | None:
    """What a directory remembers; None where nothing was saved, or by a version that knew other ports.

    Raises:
        StateError: the file is damaged.
    """
    path = _file(directory)
    try:
        saved = msgspec.json.decode(path.read_bytes(), type=Saved)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StateError(
            f"{path} is damaged ({error!r})",
            f"Remove the directory {directory} and run `dovetail dev up` again",
        ) from error
    return saved if set(saved.ports) == set(PORT_NAMES) else None


def directories(root: Path) -> Iterator[Path]:
    """Directories of clusters below the state root, by name."""
    if root.is_dir():
        yield from (path for path in sorted(root.iterdir()) if path.is_dir() and not path.name.startswith("."))


def remembered_ports(root: Path) -> set[int]:
    """Ports of all clusters of this user, running or not; a damaged one counts for nothing."""
    taken: set[int] = set()
    for directory in directories(root):
        try:
            saved = load(directory)
        except DevClusterError:
            continue
        taken.update(saved.ports.values() if saved else ())
    return taken


def is_abandoned(directory: Path) -> bool:
    """Whether a directory is that of a temporary cluster whose program is gone."""
    try:
        saved = load(directory)
    except DevClusterError:
        saved = None
    return saved is not None and saved.is_abandoned


def _file(directory: Path) -> Path:
    return directory / "cluster.json"
