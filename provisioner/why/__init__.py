"""Why does a pod have no node, and why does a node stay?

Owns the answers, made of one instant of the cluster, and the leader's server for them. Asks the rooms that decide; decides and changes nothing itself.
"""
