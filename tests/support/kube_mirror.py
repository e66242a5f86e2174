"""A world rebuilt from a reflector's events alone, to be compared with what the server has."""

import threading
import time
from collections.abc import Callable

from provisioner.apis.core import ConfigMap


class Mirror:
    """Applies every event and notes each that does not follow from the ones before."""

    def __init__(self) -> None:
        self.objects: dict[str, ConfigMap] = {}
        self.heard: list[tuple[float, str, str]] = []
        self.faults: list[str] = []
        self.syncs = 0
        self._changed = threading.Condition()

    def changed(self, old: ConfigMap | None, new: ConfigMap | None) -> None:
        obj = new if new is not None else old
        assert obj is not None
        name = obj.metadata.name
        kind = "ADDED" if old is None else "DELETED" if new is None else "MODIFIED"
        with self._changed:
            self.heard.append((time.monotonic(), kind, name))
            known = self.objects.get(name)
            if known is not old:
                self.faults.append(f"{kind} {name}: the old state is not the one told before")
            if new is not None and old is not None and new.metadata.resource_version == old.metadata.resource_version:
                self.faults.append(f"{kind} {name}: nothing changed")
            if new is None:
                self.objects.pop(name, None)
            else:
                self.objects[name] = new
            self._changed.notify_all()

    def listed(self) -> None:
        with self._changed:
            self.syncs += 1
            self._changed.notify_all()

    def versions(self) -> dict[str, str]:
        """Version by name, of everything there is."""
        with self._changed:
            return {name: obj.metadata.resource_version for name, obj in self.objects.items()}

    def until(self, condition: Callable[[], bool], seconds: float = 30.0) -> bool:
        """Wait until the events told so far satisfy the condition; whether they do."""
        with self._changed:
            return self._changed.wait_for(condition, seconds)
