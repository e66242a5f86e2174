"""Which nodes may go, why, together with which others, and what takes their pods?

Owns budgets, candidates, costs, the methods and the commands. Ends no instance: it deletes NodeClaims, and `termination` does the rest.

`controller.py` asks each method that something concerns, consolidation in a thread of its own; one ledger of budgets admits what they propose, and `commands`
carries it out. A pass of consolidation judges every node alone, then sets of nodes; once what it found has begun, many nodes at once follow
(`methods/rebuilding.py`), where the planner is lent (`DisruptionView.improved`). `forceful` asks no budget, and every budget counts it. A pause
(`state/pause.py`) holds every method and the commands that have begun.
"""
