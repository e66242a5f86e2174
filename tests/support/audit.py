"""The API server's audit log, read by tests: who changed what, and when."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Change:
    """One request that was not only read, as the API server answered it.

    Attributes:
        agent: the user agent of whoever asked.
        what: verb and resource, as "patch nodeclaims/status", with namespace and name behind.
        received: when the request had come.
        answered: when it was answered.
        status: HTTP status.
    """

    agent: str
    what: str
    received: datetime
    answered: datetime
    status: int


def entries(log: Path, words: str = "") -> Iterator[dict[str, Any]]:
    """Every event of the log as the API server wrote it, in its order; only those with these words somewhere."""
    for line in log.read_bytes().splitlines():
        if words.encode() not in line:
            continue
        with contextlib.suppress(ValueError):  # the last line may be half written
            yield json.loads(line)


def changes(log: Path, agent: str = "") -> list[Change]:
    """What is in the log, in its order; only those by user agents with `agent` in their name."""
    found = []
    for entry in entries(log, agent):
        if agent not in entry.get("userAgent", ""):
            continue
        about = entry.get("objectRef", {})
        kind = "/".join(part for part in (about.get("resource", ""), about.get("subresource", "")) if part)
        name = "/".join(part for part in (about.get("namespace", ""), about.get("name", "")) if part)
        found.append(
            Change(
                entry.get("userAgent", ""),
                f"{entry['verb']} {kind} {name}".strip(),
                datetime.fromisoformat(entry["requestReceivedTimestamp"]),
                datetime.fromisoformat(entry["stageTimestamp"]),
                entry.get("responseStatus", {}).get("code", 0),
            )
        )
    return found
