"""How does a Node end: closed, drained, its instance ended, its finalizer removed?

Owns the evictions of drains, the taint that closes, and the only call by which instances are ended. Does not choose which
node goes.
"""
