"""The states that a NodeClaim and a command have in the API, and which may follow which. What is not in a table must not happen."""

from typing import Final

from provisioner.apis import names
from provisioner.apis.command import CommandPhase
from provisioner.simulator.api_server import Wire

Edge = tuple[str, str]
TERMINATING: Final = "instance terminating"
_WAY: Final = ((names.INITIALIZED, "initialized"), (names.REGISTERED, "registered"), (names.LAUNCHED, "launched"))


def claim_state(claim: Wire | None) -> str:
    """How far a NodeClaim has come; with "ending " before it once it is being deleted."""
    if claim is None:
        return "none"
    true = {one["type"] for one in claim.get("status", {}).get("conditions", ()) if one["status"] == "True"}
    way = next((word for kind, word in _WAY if kind in true), "created")
    if "deletionTimestamp" not in claim["metadata"]:
        return way
    return TERMINATING if names.INSTANCE_TERMINATING in true else f"ending {way}"


def command_state(record_id: str, phase: str, claim: Wire | None) -> str:
    """How far the command has come whose record a NodeClaim holds."""
    if claim is None or not record_id:
        return "none"
    return f"{phase.lower()}, going" if "deletionTimestamp" in claim["metadata"] else phase.lower()


CLAIM_EDGES: Final[dict[Edge, str]] = {
    ("none", "created"): "provisioning or a command creates it",
    ("created", "launched"): "its instance is there",
    ("launched", "registered"): "its Node has joined",
    ("launched", "initialized"): "its Node has joined and was ready at once",
    ("registered", "initialized"): "its Node is ready",
    ("created", "ending created"): "it is given up before anything was launched",
    ("launched", "ending launched"): "its Node never came",
    ("registered", "ending registered"): "it is deleted before its Node was ready",
    ("initialized", "ending initialized"): "it is disrupted, or a user deletes it",
    ("ending created", "ending launched"): "it was deleted while it was launched",
    ("ending launched", "ending registered"): "it was deleted while its Node joined",
    ("ending launched", "ending initialized"): "it was deleted while its Node joined",
    ("ending registered", "ending initialized"): "it was deleted while its Node became ready",
    ("ending created", "none"): "there was nothing to end",
    ("ending launched", "none"): "its instance has ended",
    ("ending registered", TERMINATING): "its instance is being terminated, or has ended",
    ("ending initialized", TERMINATING): "its instance is being terminated, or has ended",
    (TERMINATING, "none"): "its instance has ended",
    ("ending registered", "none"): "its instance has ended, and its Node was gone before",
    ("ending initialized", "none"): "its instance has ended, and its Node was gone before",
}
"""Every edge that there is with kwok, and why."""
TERMINATING_EDGES: Final[dict[Edge, str]] = {
    ("ending created", TERMINATING): "its instance, of which it has not heard, is being terminated",
    ("ending launched", TERMINATING): "its instance is being terminated",
}
"""Edges that are there besides where instances take a while to end, as those of EC2 do; an instance of kwok ends at once."""

COMMITTED, DELETING = CommandPhase.COMMITTED.lower(), CommandPhase.DELETING.lower()
COMMAND_EDGES: Final[dict[Edge, str]] = {
    ("none", COMMITTED): "its record is written",
    ("none", f"{COMMITTED}, going"): "its record is written on a claim that a user deletes in that moment",
    (f"{COMMITTED}, going", f"{DELETING}, going"): "it is sealed while a user deletes its holder",
    (COMMITTED, "none"): "it is called off",
    (COMMITTED, DELETING): "it is sealed: all of its candidates go",
    (COMMITTED, f"{COMMITTED}, going"): "its only candidate goes, or a user deletes one",
    (DELETING, f"{DELETING}, going"): "its holder goes last",
    (f"{COMMITTED}, going", "none"): "its candidate is gone",
    (f"{DELETING}, going", "none"): "all of its candidates are gone",
}
"""A sealed command is called off as well where the API server refuses for some 20 s to delete a candidate (`queue.GIVE_UP_AFTER`): nothing that uses this table refuses so long."""
SELDOM: Final[frozenset[Edge]] = frozenset(
    {
        ("ending registered", "ending initialized"),
        ("ending registered", "none"),
        ("ending initialized", "none"),
        (f"{COMMITTED}, going", f"{DELETING}, going"),
    }
)
"""Edges that many interleavings may miss: a user must delete the object at the very write. The state tables of the unit tests go along them."""
