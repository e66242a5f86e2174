"""Clock, logs, metrics, health, work queues, servers: what every program needs, whatever it is for.

Knows nothing of Kubernetes.
"""
