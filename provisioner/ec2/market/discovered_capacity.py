"""How much memory nodes really have, by instance type and image: learned once, kept in ConfigMaps, used instead of the guess.

A figure is learned when a Node registers. It outlives changes of the image list: where a new image has no figure of its own yet, the newest image of
the same family that has one for the type stands in. Pure; thread-safe.

Source: spec/karpenter-aws.md 4.2.
Differs: kept by (type, image) and over restarts; there every change of the image list, and every restart, falls back to the guess.
"""

import threading
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from provisioner.ec2.market import persistence

KEEP: Final = timedelta(days=60)
MAX_ROWS: Final = 40_000
CONFIG_KEY: Final = "memory.json"
CONFIG_MAP_PREFIX: Final = "dovetail-aws-memory-"


class Seen(msgspec.Struct, frozen=True, array_like=True):
    """What one registered Node showed, as it is kept.

    Attributes:
        family: AMI family, e.g. AL2023.
        image_created: when the image was made; decides which one is newest. "" where unknown: then `at` does.
        memory: bytes of the Node's capacity.
        at: seconds since 1970.
    """

    instance_type: str
    image: str
    family: str
    image_created: str
    memory: int
    at: int


class MemoryTable:
    """The figures.

    Attributes:
        version: differs whenever a figure does.
    """

    def __init__(self) -> None:
        self.version = 0
        self._lock = threading.Lock()
        self._rows: dict[str, dict[str, Seen]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def learn(self, seen: Seen) -> bool:
        """Take over a figure; of several for one type and image the smallest stands, so that a plan never counts on more than there was.

        Returns:
            Whether anything that is used changed.
        """
        if seen.memory <= 0 or not seen.instance_type or not seen.image:
            return False
        with self._lock:
            return self._put(seen)

    def lookup(self, instance_type: str, image: str, family: str) -> int | None:
        """Bytes of memory to expect of the type with that image; None where nothing helps."""
        images = self._rows.get(instance_type)
        if images is None:
            return None
        known = images.get(image)
        if known is not None:
            return known.memory
        with self._lock:
            kin = [row for row in images.values() if row.family == family]
        return max(kin, key=_age).memory if kin else None

    def to_config(self, now: datetime) -> list[dict[str, str]]:
        """The data of as many ConfigMaps as it takes, each at most 900 KiB; equal tables give equal texts.

        They are named `CONFIG_MAP_PREFIX` and their index. Rows older than 60 days are left out.
        """
        oldest = int((now - KEEP).timestamp())
        with self._lock:
            rows = [row for images in self._rows.values() for row in images.values() if row.at >= oldest]
        rows.sort(key=lambda row: (row.instance_type, row.image))
        return [{CONFIG_KEY: text} for text in persistence.write(rows)]

    def restore(self, maps: Iterable[Mapping[str, str]], now: datetime) -> int:
        """Take over what was kept, too old rows aside.

        Returns:
            How many rows, or whole ConfigMaps, could not be read.
        """
        bad, oldest, newest = 0, int((now - KEEP).timestamp()), int(now.timestamp())
        for data in maps:
            text = data.get(CONFIG_KEY)
            if text is None:
                continue
            rows, unread = persistence.read(text, Seen)
            bad += unread
            for row in rows:
                if row.memory <= 0:
                    bad += 1
                elif row.at >= oldest:
                    with self._lock:
                        self._put(msgspec.structs.replace(row, at=min(row.at, newest)))
        return bad

    def _put(self, row: Seen) -> bool:
        images = self._rows.get(row.instance_type, {})
        known = images.get(row.image)
        if known is not None:
            memory = min(known.memory, row.memory)
            row = msgspec.structs.replace(row, memory=memory, at=max(known.at, row.at))
            if memory == known.memory:
                if row.at - known.at >= 86400:  # seen again: it stays, without a version of its own every time
                    self._rows[row.instance_type] = {**images, row.image: row}
                return False
        else:
            self._count += 1
        self._rows[row.instance_type] = {**images, row.image: row}  # readers hold the former one
        self.version += 1
        self._bound()
        return True

    def _bound(self) -> None:
        if self._count <= MAX_ROWS:
            return
        rows = sorted((row for images in self._rows.values() for row in images.values()), key=lambda row: row.at)
        for row in rows[: self._count - MAX_ROWS + MAX_ROWS // 16]:
            kept = {image: one for image, one in self._rows[row.instance_type].items() if image != row.image}
            if kept:
                self._rows[row.instance_type] = kept
            else:
                del self._rows[row.instance_type]
            self._count -= 1


def _age(row: Seen) -> tuple[str, int, str]:
    """Orders images of one type by how new they are."""
    created = row.image_created or datetime.fromtimestamp(row.at, UTC).isoformat()
    return created, row.at, row.image
