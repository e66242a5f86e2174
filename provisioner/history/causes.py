"""What keeps nodes as they are: the names of its causes, what each means, and which of them an event tells. Pure."""

from typing import Final

from provisioner.history.entries import EventTold

PDB, PROTECTED, BUDGET, YOUNG, POLICY, NOT_CHEAPER = (
    "PodDisruptionBudgets",
    "do-not-disrupt",
    "budgets",
    "young nodes",
    "consolidation policy",
    "nothing cheaper",
)
MEANINGS: Final = {
    PDB: "a PodDisruptionBudget allows no eviction",
    PROTECTED: "the node or one of its pods is annotated with do-not-disrupt",
    BUDGET: "a budget of the NodePool allows no disruption now",
    YOUNG: "consolidateAfter has not passed, or the node is not initialized or expects pods",
    POLICY: "the NodePool consolidates empty nodes only, or none",
}
"""Of the causes that can be lifted, in the order in which they are told."""
_WORDS: Final = (
    (PDB, ("pdb", "poddisruptionbudget")),
    (PROTECTED, ("do-not-disrupt",)),
    (BUDGET, ("blocking budget", "no allowed disruptions")),
    (YOUNG, ("nominated", "isn't initialized", "consolidateafter", "does not have an associated node")),
    (POLICY, ("consolidation disabled", "consolidation policy")),
    (NOT_CHEAPER, ("cheaper", "can't remove without creating", "would not save")),
)
"""Of a cause, the words of which one is in what Karpenter and Dovetail say of it."""


def cause_of(told: EventTold) -> str:
    """What keeps a node, in words that name no object."""
    text = told.message.lower()
    return next((cause for cause, words in _WORDS if any(one in text for one in words)), told.reason)
