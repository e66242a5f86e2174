"""What a manager does with the keys that controllers answer."""

from provisioner.runtime.controller import Controller, Keys, Manager
from provisioner.support.clock import SystemClock
from provisioner.support.workers import KeyedQueue


def hand_over(queue: KeyedQueue, keys: Keys) -> int:
    """Have the queue look at these; how many keys wait then."""
    manager = Manager(SystemClock())
    manager.take([Controller(runner=queue)])
    manager.add(queue.name, keys)
    return len(queue)
