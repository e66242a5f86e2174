"""Writes on NodeClaims and Nodes that are being deleted what they wait for. One that the API server refuses stops no other."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError, Conflict, ConnectionFailed, NotFound
from provisioner.nodeclaims.writer import ClaimWriter
from provisioner.support import logs

_log = logs.get_logger(__name__)
_Object = TypeVar("_Object", NodeClaim, Node)


def has_marks(one: NodeClaim | Node, marks: Mapping[str, str | None]) -> bool:
    """Whether an object has these annotations; None is none of that name."""
    return all(one.metadata.annotations.get(key) == value for key, value in marks.items())


class DeletionMarks:
    """Rounds of writes, from one thread: `begin_round`, then `write` for each object, then `end_round`."""

    def __init__(self, client: Client, writer: ClaimWriter) -> None:
        self._client, self._writer = client, writer
        self._before: dict[str, str] = {}  # UID -> why its write failed in the round before
        self._failed: dict[str, str] = {}  # the same, of this round
        self._silent: ConnectionFailed | None = None

    def begin_round(self) -> None:
        """From now on other objects are tried, and those again that failed."""
        self._before, self._failed, self._silent = self._failed, {}, None

    def in_order(self, those: Iterable[_Object]) -> list[_Object]:
        """Those that failed in the round before come last: while the API server does not answer for one, the others are written."""
        return sorted(those, key=lambda one: one.metadata.uid in self._before)

    def write(self, one: NodeClaim | Node, marks: Mapping[str, str | None]) -> NodeClaim | Node | None:
        """The object with these annotations; as it was where that failed; None where it is gone, or another one now.

        What failed is logged where it is new, or fails for another reason than before. Without an answer nothing more is sent in this round.
        """
        if has_marks(one, marks):
            return one
        if self._silent is not None:
            if (before := self._before.get(one.metadata.uid)) is not None:
                self._failed[one.metadata.uid] = before
            return one
        try:
            return self._patched(one, marks)
        except (NotFound, Conflict):
            return None
        except ApiError as error:
            self._silent = error if isinstance(error, ConnectionFailed) else None
            self._tell(one, str(error))
            return one

    def _patched(self, one: NodeClaim | Node, marks: Mapping[str, str | None]) -> NodeClaim | Node:
        if isinstance(one, NodeClaim):
            return self._writer.metadata(one, annotations=marks)
        body = {"metadata": {"uid": one.metadata.uid, "annotations": marks}}
        return self._writer.node_written(self._client.patch(resources.NODES, one.metadata.name, body))

    def _tell(self, one: NodeClaim | Node, why: str) -> None:
        self._failed[one.metadata.uid] = why
        if self._before.get(one.metadata.uid) == why:
            return
        _log.warning(
            "Could not write on an object whether its deletion awaits confirmation; retrying. Until then it is not terminated",
            kind=one.kind,
            name=one.metadata.name,
            error=why,
        )

    def end_round(self) -> None:
        """After everything else of the round.

        Raises:
            ConnectionFailed: the API server did not answer.
        """
        if self._silent is not None:
            raise self._silent
