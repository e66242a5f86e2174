"""How are NodeClaims and plans written, and may more of them be made now?

Owns the names, writes and plans of NodeClaims, and the limits of growth. Decides about no pod.
"""
