"""How does a Node end: closed, drained, its instance ended, its finalizer removed?

Owns the evictions of drains, the taint that closes, and the only call by which instances are ended. Does not choose which
node goes.

A drain begins with a list of the node's pods at the API server and goes on from the caches where these are newer. Before an instance ends, the pods of its
Nodes are listed there too, and what cannot be read counts as a live pod. What is asked last before an eviction
is `surge.py`, then `one_node.py`.
"""
