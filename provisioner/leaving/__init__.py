"""What does Dovetail take with it when it leaves a cluster, and what does it leave to whom?

Owns the steps of `dovetail uninstall`. Each is one write, and what comes next is decided from what the cluster has then: a command that was killed
anywhere goes on when it is run again, and one that has come to its end does nothing.

`Departure` (`departure.py`) reads (`gathering.py`), asks `decisions.py` for the next stage, and carries it out (`writes.py`). Hand nodes over to Karpenter
with `Departure.keep_nodes(Keep.FOR_KARPENTER)`, as `dovetail takeover back` does: NodeClaims, finalizers and tags stay, and what is `dovetail.dev/` goes.
Does not end, drain or delete a node.
"""
