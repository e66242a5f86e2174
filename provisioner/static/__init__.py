"""How many nodes does a static NodePool lack, or have too many?

Owns the number of their nodes. Drift of these nodes is `disruption`'s.
"""
