"""Clock, logs, metrics, health server, work queues: what every program needs and none is about."""
