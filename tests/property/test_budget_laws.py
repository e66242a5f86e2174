"""The ledger of budgets under threads: whoever asks in whatever order, no allowance is spent twice. What it allows: tests/unit/disruption/test_budgets.py."""

import sys
import threading
from collections.abc import Callable, Iterable

from provisioner.apis import names
from provisioner.apis.command import CandidateRecord, CommandRecord
from provisioner.disruption.budget_ledger import BudgetLedger
from tests.support.cluster import World, pool


class Fleet:
    """Four nodes, of which two may be disrupted at once."""

    def __init__(self) -> None:
        self.world = World()
        self.ledger = BudgetLedger(self.world.cluster)
        self.world.cluster.pool_changed(None, pool(disruption={"budgets": [{"nodes": "2"}]}))
        for number in range(4):
            self.world.existing_node(f"p{number}")

    def propose(self, name: str) -> bool:
        """Begin a command of one node; whether budgets allow it."""
        record = CommandRecord(
            id=name, reason=names.REASON_EMPTY, method="drift", candidates=(CandidateRecord(name, f"uid-{name}"),)
        )
        begin = self.world.cluster.command_begun
        return bool(self.ledger.admit([record], lambda one: one.candidate_names, lambda one: one.reason, begin))


def at_once(calls: Iterable[Callable[[], object]]) -> None:
    """Run them in threads that all begin together."""
    listed = list(calls)
    barrier = threading.Barrier(len(listed))

    def run(call: Callable[[], object]) -> None:
        barrier.wait()
        call()

    threads = [threading.Thread(target=run, args=(one,)) for one in listed]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_threads_that_ask_at_once_spend_no_allowance_twice() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(30):
            fleet = Fleet()
            done: list[str] = []

            def take(name: str, fleet: Fleet = fleet, done: list[str] = done) -> None:
                if fleet.ledger.take(name, names.REASON_DRIFTED):
                    done.append(name)

            def begin(name: str, fleet: Fleet = fleet, done: list[str] = done) -> None:
                if fleet.propose(name):
                    done.append(name)

            at_once([lambda: take("p0"), lambda: begin("p1"), lambda: take("p2"), lambda: begin("p3")])
            assert len(done) == 2
    finally:
        sys.setswitchinterval(interval)
