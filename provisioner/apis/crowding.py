"""How many pods of one owner a NodePool lets onto each of its nodes. Pure."""

import re
from typing import Final

from provisioner.apis import messages, names
from provisioner.apis.karpenter import NodePool

_NUMBER: Final = re.compile(r"[1-9][0-9]{0,3}", re.ASCII)


class CrowdingError(ValueError):
    """The annotation is not a number of pods; says the path, what is there, and what may be."""


def most_of_one(pool: NodePool) -> int | None:
    """The most pods of one owner on a node of this NodePool; None for any number.

    Raises:
        CrowdingError: nobody can tell how many.
    """
    text = pool.metadata.annotations.get(names.MAX_PODS_PER_WORKLOAD)
    if text is None:
        return None
    if not _NUMBER.fullmatch(text):
        raise CrowdingError(messages.not_a_number_of_pods(names.MAX_PODS_PER_WORKLOAD, text[:64]))
    return int(text)
