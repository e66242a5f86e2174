"""What is a controller, and what is each given: what the caches know and tell, metrics, whether the view is current, and what the API server itself has?

Owns the list of controllers and what runs it (`controller.py`), which kinds are watched, the types of changes, and guarded patches of Nodes. Which controllers
there are is said by their rooms.

Every replica has the caches. An event goes into `state.Cluster` under one lock, then, typed, to the controllers that listen; what has to be done about it comes
back as effects. Controllers run in the leader only, and every write asks the fence right before its bytes go out (`kube/sending.py`).
"""
