"""Which nodes go regardless of budgets: those past their `expireAfter`, and broken ones that no command repairs?

Owns expiration, and the repair of NodeClaims without a NodePool, of drains that are under way, and with `--legacy-node-repair` of all nodes.
"""
