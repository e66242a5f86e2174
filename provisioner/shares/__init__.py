"""Which pod of an owner goes next, so that as many run on demand as its pods ask for?

Owns the repair of shares; the stamps of new pods are the webhook's.
"""
