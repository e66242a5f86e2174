"""`dovetail` with a thread that counts what is in its memory: `SOAK_COUNTS=FILE python -m tests.soak.counted provisioner …`.

Every 15 s it adds a line to the file: tasks of event loops, keys of queues, threads by their name, how many objects there are of the types that have most,
and how many entries the largest collections have that our objects keep, by class and attribute: who keeps what it should forget has a name.
"""

import gc
import json
import os
import re
import threading
import time
from asyncio import Task
from collections import Counter, deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from provisioner.cli.entry import main
from provisioner.support.workers import Schedule

FILE: Final = "SOAK_COUNTS"
SECONDS: Final = 15.0
TYPES: Final = 60
MANY: Final = 2000
"""Of so many objects of one class, none is looked into: they are values, and counted as such."""
OURS: Final = ("provisioner.", "extender.", "webhook.", "certs.")
_NUMBER: Final = re.compile(r"[-_ ]?\d+$")


def counts() -> dict[str, float]:
    """By name, as `laws` has them. Cost: O(objects), of 300,000 a tenth of a second."""
    found = gc.get_objects()
    types = Counter(map(type, found))
    queues = [one for one in found if type(one) is Schedule]
    threads = Counter(_NUMBER.sub("", one.name) for one in threading.enumerate())
    made: dict[str, float] = {
        "tasks": sum(number for kind, number in types.items() if issubclass(kind, Task)),
        "keys of queues": sum(len(one) + one.running for one in queues),
        "keys in heaps of queues": sum(len(one._heap) for one in queues),
        "objects": len(found),
    }
    made |= {f"entries of {name}": number for name, number in entries(found, types).most_common(TYPES)}
    made |= {f"objects of {kind.__module__}.{kind.__qualname__}": number for kind, number in types.most_common(TYPES)}
    return made | {f"thread {name}": number for name, number in sorted(threads.items())}


def entries(found: Iterable[object], types: Counter[type]) -> Counter[str]:
    """How many entries collections have that objects of our classes keep, by class and attribute, of all objects of a class together.

    Objects that they have as attributes count, too: the collector does not tell of those that were put out of its reach.
    """
    sizes: Counter[str] = Counter()
    seen: set[int] = set()
    left = [one for one in found if _is_looked_into(type(one), types)]
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        kind = type(one)
        for name, value in _attributes(one):
            if isinstance(value, dict | set | list | deque):
                sizes[f"{kind.__module__}.{kind.__qualname__}.{name}"] += len(value)
            elif _is_looked_into(type(value), types):
                left.append(value)
    return sizes


def _is_looked_into(kind: type, types: Counter[type]) -> bool:
    return str(kind.__module__).startswith(OURS) and types[kind] <= MANY


def _attributes(one: object) -> list[tuple[str, Any]]:
    slots = [name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ()) if isinstance(name, str)]
    own = [(name, getattr(one, name, None)) for name in slots if not name.startswith("__")]
    return [*own, *list(getattr(one, "__dict__", {}).items())]


def _count(file: Path) -> None:
    while True:
        time.sleep(SECONDS)
        told = json.dumps(counts())
        with file.open("a", encoding="utf-8") as lines:
            lines.write(told + "\n")


if __name__ == "__main__":
    threading.Thread(target=_count, args=(Path(os.environ[FILE]),), name="counts", daemon=True).start()
    main()
