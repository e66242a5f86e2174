"""What `make soak` counts in the memory of a program."""

import asyncio
from collections import Counter

from provisioner.support.workers import KeyedQueue, Schedule
from tests.soak.counted import MANY, counts, entries


def queue(*keys: str) -> Schedule:
    made = Schedule()
    for number, key in enumerate(keys):
        made.add(key, float(number))
    return made


def test_tasks_keys_and_threads_are_counted() -> None:
    kept = queue("a", "b")
    kept.add("a", -1.0)

    async def look() -> dict[str, float]:
        waiting = asyncio.create_task(asyncio.sleep(60))
        found = counts()
        waiting.cancel()
        return found

    before, during = counts(), asyncio.run(look())
    assert during["tasks"] == before["tasks"] + 2, "this one, and the one that waits"
    assert before["keys of queues"] >= 2
    assert before["keys in heaps of queues"] >= before["keys of queues"] + 1
    assert before["thread MainThread"] == 1
    assert before["objects"] > 0


def test_entries_have_the_name_of_class_and_attribute() -> None:
    some = [queue("a", "b"), queue("c"), object()]
    found = entries(some, Counter(map(type, some)))
    name = "provisioner.support.workers.Schedule"
    assert (found[f"{name}._due"], found[f"{name}._heap"], found[f"{name}._again"]) == (3, 3, 0)


def test_what_an_object_has_as_an_attribute_counts_once() -> None:
    work = KeyedQueue("work", lambda _: None)
    work.add("a")
    some = [work, work._schedule]
    found = entries(some[:1], Counter(map(type, some)))
    assert found == entries(some, Counter(map(type, some)))
    assert found["provisioner.support.workers.Schedule._due"] == 1


def test_values_are_not_looked_into() -> None:
    some = [queue("a")]
    assert not entries(some, Counter({Schedule: MANY + 1}))
