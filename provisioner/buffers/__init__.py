"""Which pods stand for a CapacityBuffer, and what does its status say?

Owns virtual pods, which nobody makes (those of ProvisioningRequests are made here, too), and the status.
"""
