"""The only code that talks to the API server: connection, client, typed caches, leases, events."""
