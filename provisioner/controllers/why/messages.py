"""Texts that `controllers.why` logs and answers; docs/reference/messages.md is generated from them."""

from typing import Final

# server.py
ANSWERED: Final = "Answered a request of dovetail why"
ANSWER_FAILED: Final = "Failed to answer a request of dovetail why"

# access.py
TOKEN_NEEDED: Final = "the request has no bearer token; set the header Authorization"
TOKEN_REFUSED: Final = "the API server does not accept this token"
TOO_MANY_TOKENS: Final = "too many tokens are being reviewed; try again later"
TOO_MANY_PERMISSIONS: Final = "too many permissions are being reviewed; try again later"


# pods.py and nodes.py
def no_pod(namespace: str, name: str) -> str:
    return f"there is no pod {namespace}/{name}"


def no_node(name: str) -> str:
    return f"there is no Node and no NodeClaim {name}"


def refused_again(pod: str, scheduler: str, node: str, seconds: float) -> str:
    """What is said of a pod that takes no room in simulations."""
    return (
        f"{scheduler} has refused pod {pod} for {seconds:g} s or longer although node {node} has room for it as far as the provisioner knows, so the pod "
        "keeps no room and holds no disruption; its condition PodScheduled says what the scheduler found"
    )


def without_a_place(pod: str, why: str) -> str:
    """What holds a drain beside a PodDisruptionBudget that counts this pod as missing."""
    return f"pod {pod} waits for a node: {why}"


# visibility.py
def names_left(namespaces: int) -> str:
    return f"an answer would have named objects in {namespaces} namespaces that the user may not see"
