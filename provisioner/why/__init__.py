"""Why does a pod have no node, and why does a node stay?

Owns the answers, made of one instant of the cluster, and the leader's server for them. Asks the rooms that decide; decides and changes nothing itself.

The leader's instant is its snapshot, disruption's own world and what the term remembers, so a question costs no second world. `visibility.py` looks for
"namespace/name" in every sentence: an answer with a name left that is not to be seen is an error.
"""
