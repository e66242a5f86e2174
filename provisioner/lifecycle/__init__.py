"""What becomes of a NodeClaim until its Node may be used: launched, registered, initialised, kept as it should be?

Owns launches, registration, nominations and garbage collection of NodeClaims. The end of a Node is `termination`'s.

One reconciler a NodeClaim resumes from whatever the cluster says. Nodes are let in by waves, which wait for the nodes of the same plan. A shortage leaves
the NodeClaim where it is, Launched=Unknown with the reason, until nothing that it allows can ever be had, or another place was found for its pods
(`launch_fallback.py`).
"""
