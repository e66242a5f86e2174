"""Texts that `planning` makes and others publish, by the module that uses them; docs/reference/messages.md is generated from here. Pure."""

from typing import Final

# protocol.py
KEEPS_UNKNOWN_CLAIMS: Final = "its plan keeps NodeClaims that do not exist"
NAMES_UNKNOWN_PODS: Final = "its plan names pods that do not exist"
NOT_EVERY_POD_ONCE: Final = "its plan does not contain every pod exactly once"


def nothing_readable(error: Exception) -> str:
    return f"its answer cannot be read: {error}"


def moves_pods_to_pool(pool: str) -> str:
    return f"its plan moves pods to NodePool {pool!r}"


NO_WORLD: Final = "the question refers to a world that was not sent"
