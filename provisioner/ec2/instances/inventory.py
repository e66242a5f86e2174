"""The instances of the cluster as EC2 listed them last, for everybody who needs no newer word."""

import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from provisioner.ec2.instances.instances import Ec2Instance, instance_id_of
from provisioner.support.clock import Clock


class InventorySource(Protocol):
    """Who asks EC2: `Instances`."""

    def get(self, provider_id: str) -> Ec2Instance:
        """One instance, as it is now."""
        ...

    def list(self) -> Sequence[Ec2Instance]:
        """Every instance of the cluster."""
        ...


class Inventory:
    """The last list; thread-safe."""

    def __init__(self, source: InventorySource, clock: Clock) -> None:
        self._source, self._clock = source, clock
        self._lock, self._first = threading.Lock(), threading.Lock()
        self._found: Mapping[str, Ec2Instance] = {}
        self.listed_at: datetime | None = None

    def refresh(self) -> tuple[Ec2Instance, ...]:
        """List them all, and remember that.

        Raises:
            CloudError: EC2 did not answer; the former list stays.
        """
        asked = self._clock.now()
        listed = tuple(self._source.list())
        with self._lock:
            self._found = {one.id: one for one in listed}
            self.listed_at = asked
        return listed

    def listed(self) -> tuple[Ec2Instance, ...]:
        """The last list, in order of id."""
        with self._lock:
            return tuple(self._found.values())

    def find(self, provider_id: str) -> Ec2Instance:
        """An instance as it was listed, or as EC2 says now where it was not; the first to ask has them all listed.

        Raises:
            InstanceNotFoundError: there is none.
            CloudError: EC2 did not answer.
        """
        if self.listed_at is None:
            with self._first:  # one list, rather than a question for every instance
                if self.listed_at is None:
                    self.refresh()
        with self._lock:
            found = self._found.get(instance_id_of(provider_id))
        return found if found is not None else self._source.get(provider_id)

    def get(self, provider_id: str) -> Ec2Instance:
        """An instance as EC2 says now.

        Raises:
            InstanceNotFoundError: there is none.
            CloudError: EC2 did not answer.
        """
        return self._source.get(provider_id)
