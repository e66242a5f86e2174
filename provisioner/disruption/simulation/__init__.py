"""What becomes of the cluster when proposals are carried out: where do the pods go, what is given up, and what must wait?

Asks `scheduling`, and judges no place itself. Pure without exception.
"""
