"""What EC2 sells, has and does: every call to AWS, and the controllers that only EC2 needs.

Owns launches, instances, prices, node classes and interruptions of EC2. No room below
knows it; of those above, `node_classes`, `operator.main`, `cli` and `lab` do. `cloud.py` is what it brings into the program; boto3 is loaded only with
--provider aws. The tests' EC2 is `tests/support/ec2`, over HTTP, in a process of its own.
"""
