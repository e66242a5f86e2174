"""How are NodeClaims and plans written, and may more of them be made now?

Owns the names, writes and plans of NodeClaims, and the limits of growth. Decides about no pod.

The plan is an annotation of the NodeClaim, and nowhere else. `creator.py` asks limits once more before the state hears of a claim: those of the NodePool
(`PoolView.left`) and those over all. They count the NodeClaims that there are and the replacements in commands; what goes counts for nobody.
"""
