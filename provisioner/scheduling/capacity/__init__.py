"""What can nodes take: those that exist, and those that NodePools may make?

Owns room, instance types, offers and what limits leave.
"""
