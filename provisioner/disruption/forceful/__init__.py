"""Which nodes go regardless of budgets: those past their `expireAfter`, and those that are unhealthy?

Owns expiration and repair.
"""
