"""Where does kube-scheduler put a pod that has a plan, and where one that has none?

Owns the plan table, holds, vetoes and who is woken. It may use provisioner.state and below, never the rooms above it, which decide and act.

Reflectors feed the table behind the lock of `board.py`, and `answering.py` asks it; the rules are in `placement.py`. Events enter the table in
`plan.py`; its parts are `nodes.py` and `families.py` (what watches told), `places.py` (who has which place of a plan), `room.py` (what that holds back) and
`groups.py` (whose nodes are launched together), over the values of `sites.py` and `holds.py`. What is stale, slow (`breaker.py`) or goes
wrong passes every node.
"""
