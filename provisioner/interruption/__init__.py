"""What is done about instances that their cloud takes back?

Owns the answer to a mark on a NodeClaim; who makes the mark is the cloud's. Budgets are those of `disruption`.
"""
