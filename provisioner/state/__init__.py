"""What is known of the cluster, and what was promised to whom? One lock, one frozen snapshot for whoever decides.

Owns what the watches have told, plans, assignments and commands. No I/O; effects are carried out by whoever caused them.

`cluster.py` is the facade that events enter and effects leave. `view_keeper.py` makes the views of nodes; `plans.py` has the assignments, `claim_plans.py`
which NodeClaims are needed and may be launched, `open_nodes.py` since when nodes take their pods, `lacking.py` what they lack until then, `staying.py` which
nodes stay.

An assignment is kept for each planned pod until it is bound, taken over, given up or late. The
extender has the same rules of promises and room (`promises.py`, `room_ledger.py`), with an index of its own and what it assumes above it.
"""
