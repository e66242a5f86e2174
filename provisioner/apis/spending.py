"""What a NodePool says its nodes may cost together. Pure."""

import re
from typing import Final

from provisioner.apis import messages, names
from provisioner.apis.karpenter import NodePool

MICROS: Final = 10**6
USD: Final = "USD per hour"
"""Among resources: in millionths. No pod can ask for it, since it is no name of a resource to Kubernetes."""
_DECIMAL: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?", re.ASCII)


class SpendingLimitError(ValueError):
    """The annotation is not an amount; says the path, what is there, and what may be."""


def spending_limit(pool: NodePool) -> int | None:
    """Millionths of a USD per hour that the nodes of a NodePool may cost together; None where it says nothing.

    Raises:
        SpendingLimitError: nobody can tell how much.
    """
    text = pool.metadata.annotations.get(names.MAX_USD_PER_HOUR)
    if text is None:
        return None
    whole, _, part = text.partition(".")
    micros = int(whole) * MICROS + int(part.ljust(6, "0") or 0) if _DECIMAL.fullmatch(text) else 0
    if not micros:
        raise SpendingLimitError(messages.not_an_amount_of_money(names.MAX_USD_PER_HOUR, text[:64]))
    return micros
