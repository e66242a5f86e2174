"""What do pods ask of each other: who is in which domain, and what does that leave to others?

Owns the counts of spread, affinity and anti-affinity.
"""
