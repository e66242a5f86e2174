"""For which ProvisioningRequests is there room, and whose is it?

Owns the pods that stand for a request until its own pods come, and its status. What a request means, and when it is over, is decided in `decisions`; which
pods are asked about in a run of provisioning, and which real pods take their places, in `bookings`. Virtual pods are made as those of CapacityBuffers are.
"""
