"""The keys of nodes in the state: the name of the NodeClaim, or that of the Node where there is no NodeClaim."""

from typing import NamedTuple


class NodeKey(NamedTuple):
    """The key of a node in the state: its NodeClaim's name where it has a claim, else the Node's own.

    A Node that is joined to a claim later is known by the claim's key from then on. Keys are ordered by name.

    Attributes:
        name: of the NodeClaim, or of the Node.
        of_claim: which of the two.
    """

    name: str
    of_claim: bool = True

    @classmethod
    def of_node(cls, name: str) -> "NodeKey":
        """The key of a Node without a NodeClaim."""
        return cls(name, of_claim=False)

    def __str__(self) -> str:
        """Unique, for people and for maps by text; never read back."""
        return self.name if self.of_claim else f"node/{self.name}"
