"""Tables that survive the process: written to ConfigMaps while it leads, read by the one that leads next.

A text holds rows behind a version, at most 900 KiB of them; a row that cannot be read costs itself only.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar

import msgspec

from provisioner.apis.core import ConfigMap
from provisioner.kube.errors import ApiError, NotFound
from provisioner.kube.resources import CONFIGMAPS, Resource
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.poller import Poller
from provisioner.values import jsontext

MANAGER: Final = "dovetail"
MAX_PARTS: Final = 8
"""ConfigMaps that one table may fill; the permissions name as many."""

_SAVE_SECONDS: Final = 10.0
MAX_BYTES: Final = 900 * 1024
"""Of one text."""
_ENVELOPE: Final = 64
_VERSION: Final = 1
_log = logs.get_logger(__name__)

Row = TypeVar("Row", bound=msgspec.Struct)


class _Kept(msgspec.Struct, frozen=True):
    v: int
    rows: list[msgspec.Raw]


_decode_kept = jsontext.decoder(_Kept)


class MapClient(Protocol):
    """What of `kube.client.Client` is needed."""

    def get(self, resource: Resource[ConfigMap], name: str, namespace: str, /) -> ConfigMap: ...

    def apply(self, resource: Resource[ConfigMap], name: str, body: object, manager: str, namespace: str, /) -> Any: ...


@dataclass(frozen=True)
class KeptTable:
    """One table, and how it is kept.

    Attributes:
        name: of its ConfigMap; of several, the numbered ones that begin with it.
        several: whether it may fill more than one.
        write: the data of each of its ConfigMaps; equal tables give equal texts.
        read: takes over what was kept; how much of it could not be read.
    """

    name: str
    several: bool
    write: Callable[[datetime], Sequence[Mapping[str, str]]]
    read: Callable[[Sequence[Mapping[str, str]], datetime], int]

    def map_name(self, index: int) -> str:
        """The name of its ConfigMap of that number."""
        return f"{self.name}{index}" if self.several else self.name


class Keeper:
    """Keeps tables, in the thread of `poller`; thread-safe."""

    def __init__(self, client: MapClient, namespace: str, tables: Sequence[KeptTable], clock: Clock) -> None:
        self._client, self._namespace, self._tables, self._clock = client, namespace, tables, clock
        self._lock = threading.Lock()
        self._restored: set[str] = set()
        self._written: dict[str, Mapping[str, str]] = {}
        self._started = False
        self.poller = Poller("aws-keeper", self._poll, _SAVE_SECONDS, first=_SAVE_SECONDS)

    def begin(self) -> None:
        """Read what was kept; from now on what changes is kept."""
        self.restore()
        self._started = True

    def stop(self) -> None:
        """Keep what changed last."""
        if self._started:
            self.save()

    def restore(self) -> None:
        """Take over what was kept; a table that cannot be read now is read before it is written."""
        with self._lock:
            for table in self._tables:
                self._restore(table)

    def save(self) -> None:
        """Write what differs from what is kept; what fails is tried again at the next call."""
        with self._lock:
            for table in self._tables:
                if table.name in self._restored or self._restore(table):
                    self._save(table)

    def _poll(self) -> float:
        self.save()
        return _SAVE_SECONDS

    def _restore(self, table: KeptTable) -> bool:
        found: list[Mapping[str, str]] = []
        try:
            for index in range(MAX_PARTS if table.several else 1):
                name = table.map_name(index)
                data = self._client.get(CONFIGMAPS, name, self._namespace).data
                self._written[name] = data
                found.append(data)
        except NotFound:
            pass
        except ApiError as error:
            _log.warning("Failed to read a persisted table; starting without it", table=table.name, error=str(error))
            return False
        bad = table.read(found, self._clock.now())
        if bad:
            _log.warning("Dropped unreadable entries of a persisted table", table=table.name, parts=bad)
        self._restored.add(table.name)
        return True

    def _save(self, table: KeptTable) -> None:
        parts = list(table.write(self._clock.now()))[:MAX_PARTS]
        known = sum(table.map_name(index) in self._written for index in range(MAX_PARTS)) if table.several else 0
        parts += [{}] * (known - len(parts))  # of a table that shrank
        for index, data in enumerate(parts):
            name = table.map_name(index)
            if self._written.get(name) == data:
                continue
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
            try:
                self._client.apply(CONFIGMAPS, name, body, MANAGER, self._namespace)
            except ApiError as error:
                _log.warning("Failed to persist a table; retrying", table=name, error=str(error))
                return
            self._written[name] = data


def write(rows: Iterable[msgspec.Struct]) -> Iterator[str]:
    """As many texts as the rows take, in their order, each at most `MAX_BYTES`; one where there are none. Lazy."""
    part: list[msgspec.Raw] = []
    size = _ENVELOPE
    for row in rows:
        text = msgspec.json.encode(row)
        if size + len(text) + 1 > MAX_BYTES:
            yield _text(part)
            part, size = [], _ENVELOPE
        part.append(msgspec.Raw(text))
        size += len(text) + 1
    yield _text(part)


def read(text: str, row_type: type[Row]) -> tuple[list[Row], int]:
    """The rows of one text, and how many could not be read; a text that is no table at all counts as one."""
    try:
        kept = _decode_kept(text)
    except msgspec.DecodeError:
        return [], 1
    if kept.v != _VERSION:
        return [], len(kept.rows)
    rows = []
    decode_row = jsontext.decoder(row_type)
    for raw in kept.rows:
        try:
            rows.append(decode_row(raw))
        except msgspec.DecodeError:
            continue
    return rows, len(kept.rows) - len(rows)


def _text(part: list[msgspec.Raw]) -> str:
    return msgspec.json.encode(_Kept(_VERSION, part)).decode()
