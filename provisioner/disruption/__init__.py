"""Which nodes may go, why, together with which others, and what takes their pods?

Owns budgets, candidates, costs, the methods and the commands. Ends no instance: it deletes NodeClaims, and `termination` does the rest.
"""
