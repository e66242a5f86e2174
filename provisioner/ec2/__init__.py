"""What EC2 sells, has and does: every call to AWS, and the controllers that only EC2 needs.

Owns launches, instances, prices, node classes and interruptions of EC2. No room below
knows it; of those above, `node_classes`, `operator.main`, `cli` and `lab` do.
"""
