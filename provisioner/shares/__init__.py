"""Which pod of an owner goes next, so that as many run on demand as its pods ask for?

Owns the repair of shares; the stamps of new pods are the webhook's.

What was tried is written on a brother of the pod before its eviction, by `pods/status`, so that a new leader stops where the last one did. The record names
the pod: while that pod is there, nothing was carried out and the attempt does not count.
"""
