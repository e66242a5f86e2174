"""Texts that `support` publishes, by the module that does; docs/reference/messages.md is generated from them."""

from typing import Final

# ending.py
FAILED_TO_STOP_COMPONENT_CLEANLY: Final = "Failed to stop a component cleanly"
ENDING_THIS_PROCESS: Final = "Ending this process"

# health.py
FAILED_TO_SERVE_METRICS_AND_PROBES: Final = "Failed to serve metrics and probes; the program continues without them"
HEALTH_CHECK_FAILED: Final = "Health check failed"

# heartbeat.py
THREAD_ENDED_WITH_ERROR: Final = "A thread ended with an error"

# memory.py
MEMORY_USAGE_IS_HIGH: Final = (
    "Memory usage is above 90 % of --memory-limit; raise the container's limit if this persists"
)

# poller.py
POLLING_FAILED: Final = "A periodic task failed; retrying"

# workers.py
RECONCILE_FAILED: Final = "Reconcile failed; retrying"
CALL_FAILED: Final = "Call failed"
NO_MORE_THREADS: Final = "Failed to start a thread; the queue continues with the threads that it has"

# addresses.py


def not_host_and_port(text: str) -> str:
    return f"{text!r} is not HOST:PORT, such as 127.0.0.1:8443, [::1]:8443 or :8443"


# logs.py


def unknown_log_level(level: str, known: str) -> str:
    return f"log level {level!r} is not one of {known}"


def unknown_log_format(given: str) -> str:
    return f"log format {given!r} is not one of text, json"
