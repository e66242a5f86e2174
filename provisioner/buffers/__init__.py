"""Which pods stand for a CapacityBuffer, and what does its status say?

Owns virtual pods, which nobody makes, and the status.
"""
