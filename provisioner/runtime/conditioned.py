"""What all objects of Karpenter's API have in common: they say what they are, and have conditions."""

from typing import Protocol

from provisioner.apis.meta import Condition, ObjectMeta


class ClusterScopedObject(Protocol):
    """A cluster-wide object that says what it is: a NodeClaim, a NodePool, a NodeClass."""

    @property
    def api_version(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def metadata(self) -> ObjectMeta: ...


class _Status(Protocol):
    @property
    def conditions(self) -> tuple[Condition, ...]: ...


class Conditioned(ClusterScopedObject, Protocol):
    """An object with conditions."""

    @property
    def status(self) -> _Status: ...
