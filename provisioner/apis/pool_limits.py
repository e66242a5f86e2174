"""What a NodePool limits by an annotation: what its nodes may cost together, and how many pods of one owner each takes. Pure."""

import re
from typing import Final

from provisioner.apis import names
from provisioner.apis.karpenter import NodePool

MICROS: Final = 10**6
USD: Final = "USD per hour"
"""Among resources: in millionths. No pod can ask for it, since it is no name of a resource to Kubernetes."""
_DECIMAL: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?", re.ASCII)
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,3}", re.ASCII)


class PoolLimitError(ValueError):
    """The annotation is no such limit; says the path, what is there, and what may be."""


def spending_limit(pool: NodePool) -> int | None:
    """Millionths of a USD per hour that the nodes of a NodePool may cost together; None where it says nothing.

    Raises:
        PoolLimitError: nobody can tell how much.
    """
    text = pool.metadata.annotations.get(names.MAX_USD_PER_HOUR)
    if text is None:
        return None
    whole, _, part = text.partition(".")
    micros = int(whole) * MICROS + int(part.ljust(6, "0") or 0) if _DECIMAL.fullmatch(text) else 0
    if not micros:
        raise PoolLimitError(
            f"metadata.annotations[{names.MAX_USD_PER_HOUR}]: {text[:64]!r} is not a decimal number above 0, such as "
            "12.5; to launch no nodes, set a limit of 0 on cpu"
        )
    return micros


def most_of_one(pool: NodePool) -> int | None:
    """The most pods of one owner on a node of this NodePool; None for any number.

    Raises:
        PoolLimitError: nobody can tell how many.
    """
    text = pool.metadata.annotations.get(names.MAX_PODS_PER_WORKLOAD)
    if text is None:
        return None
    if not _NUMBER.fullmatch(text):
        raise PoolLimitError(
            f"metadata.annotations[{names.MAX_PODS_PER_WORKLOAD}]: {text[:64]!r} is not a whole number from 1 to "
            "9999; remove the annotation for any number of pods"
        )
    return int(text)
