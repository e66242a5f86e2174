"""What is every controller given: what the caches know and tell, metrics, whether the view is current, and what the API server itself has?

Owns which kinds are watched, the types of changes, and guarded patches of Nodes. Knows no controller.

Every replica has the caches. An event goes into `state.Cluster` under one lock, then, typed, to the controllers that listen; what has to be done about it comes
back as effects. Controllers run in the leader only, and every write asks the fence right before its bytes go out (`kube/sending.py`).
"""
