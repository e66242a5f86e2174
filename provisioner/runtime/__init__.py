"""What is every controller given: what the caches know and tell, metrics, whether the view is current, and what the API server itself has?

Owns which kinds are watched, the types of changes, and guarded patches of Nodes. Knows no controller.
"""
