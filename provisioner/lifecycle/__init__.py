"""What becomes of a NodeClaim until its Node may be used: launched, registered, initialised, kept as it should be?

Owns launches, registration, nominations and garbage collection of NodeClaims. The end of a Node is `termination`'s.
"""
