"""The only code that talks to the API server: connection, client, typed caches, leases, events.

Owns requests, watches and the limits of both. Knows no decision.
"""
