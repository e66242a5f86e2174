"""What is the state of a NodePool and of a NodeOverlay, as their status says?

Owns these conditions and counters.
"""
