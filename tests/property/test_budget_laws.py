"""Laws of the ledger of budgets: whoever asks in whatever order, what is taken never exceeds what any budget allows."""

import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.apis.command import CandidateRecord, CommandRecord
from provisioner.disruption.budget_ledger import BudgetLedger
from tests.support.clock import NOON
from tests.support.cluster import World, claim, node, pool

ALL_TRUE = (names.LAUNCHED, names.REGISTERED, names.INITIALIZED)
NODES = tuple(f"{of}{number}" for of in "pq" for number in range(4))
REASONS = (names.REASON_EMPTY, names.REASON_DRIFTED, names.REASON_UNDERUTILIZED)
Budgets = tuple[tuple[int, tuple[str, ...] | None], ...]

budgets = st.lists(
    st.tuples(st.integers(0, 3), st.none() | st.lists(st.sampled_from(REASONS), max_size=2, unique=True).map(tuple)),
    max_size=3,
).map(tuple)
some_nodes = st.lists(st.sampled_from(NODES), min_size=1, max_size=3, unique=True).map(
    lambda found: tuple(sorted(found))
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("propose"), some_nodes, st.sampled_from(REASONS)),
        st.tuples(st.sampled_from(["take", "release"]), st.sampled_from(NODES), st.sampled_from(REASONS)),
        st.tuples(
            st.sampled_from(["call off", "delete", "gone", "not ready", "ready", "new"]),
            st.sampled_from(NODES),
            st.just(""),
        ),
    ),
    max_size=25,
)


class Fleet:
    """Nodes of two pools, and beside the state a plain book of who is away."""

    def __init__(self, of_p: Budgets, of_q: Budgets) -> None:
        self.world = World()
        self.ledger = BudgetLedger(self.world.cluster)
        self.budgets = {"p": of_p, "q": of_q}
        self.commands: dict[str, CommandRecord] = {}
        self.away: set[str] = set()  # deleted by a user, an expiration, …
        self.taken: set[str] = set()
        self.unready: set[str] = set()
        self.there: set[str] = set()
        for name, mine in self.budgets.items():
            wire = [
                {"nodes": str(nodes)} | ({"reasons": list(reasons)} if reasons is not None else {})
                for nodes, reasons in mine
            ]
            self.world.cluster.pool_changed(None, pool(name, disruption={"budgets": wire}))
        for name in NODES:
            self.new(name)

    def new(self, name: str) -> None:
        if name not in self.there:
            self.there.add(name)
            self._claim(name)
            self._node(name)

    def gone(self, name: str) -> None:
        if name in self.there:
            self.there.discard(name)
            self.away.discard(name)
            self.unready.discard(name)
            cluster = self.world.cluster
            cluster.node_changed(cluster.node(name), None)
            cluster.claim_changed(cluster.claim(name), None)
            self.commands = {key: one for key, one in self.commands.items() if one.holder != name}

    def delete(self, name: str) -> None:
        if name in self.there:
            self.away.add(name)
            self._claim(name, deletionTimestamp=NOON.isoformat())

    def ready(self, name: str, *, ready: bool) -> None:
        if name in self.there:
            (self.unready.discard if ready else self.unready.add)(name)
            self._node(name)

    def call_off(self, name: str) -> None:
        for key, one in list(self.commands.items()):
            if name in one.candidate_names:
                self.world.cluster.command_dropped(self.commands.pop(key))

    def propose(self, those: tuple[str, ...], reason: str, number: int) -> bool:
        candidates = tuple(CandidateRecord(name, f"uid-{name}") for name in those)
        record = CommandRecord(id=str(number), reason=reason, method="drift", candidates=candidates)
        begun = self.ledger.admit(
            [record], lambda one: one.candidate_names, lambda one: one.reason, self.world.cluster.command_begun
        )
        if begun:
            self.commands[record.id] = record
        return bool(begun)

    def consuming(self, of: str) -> int:
        marked = {name for one in self.commands.values() for name in one.candidate_names}
        mine = {name for name in self.there if name[0] == of}
        return len(mine & (marked | self.away | self.unready | self.taken))

    def limit(self, of: str, reason: str) -> int:
        mine = [nodes for nodes, reasons in self.budgets[of] if reasons is None or reason in reasons]
        return min([len([name for name in self.there if name[0] == of]), *mine])

    def _claim(self, name: str, **changes: Any) -> None:
        one = claim(name, pool=name[0], provider_id=f"kwok://{name}", true=ALL_TRUE, **changes)
        self.world.cluster.claim_changed(self.world.cluster.claim(name), one)

    def _node(self, name: str) -> None:
        one = node(name, ready=name not in self.unready, labels={names.NODEPOOL_LABEL: name[0]})
        self.world.cluster.node_changed(self.world.cluster.node(name), one)


@given(of_p=budgets, of_q=budgets, taken=steps)
def test_no_budget_is_ever_exceeded_by_what_is_begun(of_p: Budgets, of_q: Budgets, taken: list[Any]) -> None:
    fleet = Fleet(of_p, of_q)
    for number, (what, which, reason) in enumerate(taken):
        match what:
            case "propose":
                before = {of: fleet.consuming(of) for of in "pq"}
                if fleet.propose(which, reason, number):
                    for of in {name[0] for name in which}:
                        assert before[of] <= fleet.consuming(of) <= fleet.limit(of, reason)
            case "take":
                free = which in fleet.there and fleet.consuming(which[0])
                if fleet.ledger.take(which, reason):
                    fleet.taken.add(which)
                    if free is not False and fleet.consuming(which[0]) > free:
                        assert fleet.consuming(which[0]) <= fleet.limit(which[0], reason)
            case "release":
                fleet.ledger.release(which)
                fleet.taken.discard(which)
            case "call off":
                fleet.call_off(which)
            case "delete":
                fleet.delete(which)
            case "gone":
                fleet.gone(which)
            case "not ready":
                fleet.ready(which, ready=False)
            case "ready":
                fleet.ready(which, ready=True)
            case _:
                fleet.new(which)


@given(of_p=budgets, wanted=st.lists(st.tuples(some_nodes, st.sampled_from(REASONS)), max_size=6))
def test_what_budgets_allow_is_not_refused(of_p: Budgets, wanted: list[tuple[tuple[str, ...], str]]) -> None:
    fleet = Fleet(of_p, ())
    for number, (which, reason) in enumerate(wanted):
        busy = {name for one in fleet.commands.values() for name in one.candidate_names}
        fits = all(
            fleet.consuming(of) + len([name for name in which if name[0] == of]) <= fleet.limit(of, reason)
            for of in {name[0] for name in which}
        )
        assert fleet.propose(which, reason, number) is (fits and not busy & set(which))


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
            fleet = Fleet(((2, None),), ())
            done: list[str] = []

            def take(name: str, fleet: Fleet = fleet, done: list[str] = done) -> None:
                if fleet.ledger.take(name, names.REASON_DRIFTED):
                    done.append(name)

            def begin(name: str, fleet: Fleet = fleet, done: list[str] = done) -> None:
                if fleet.propose((name,), names.REASON_EMPTY, int(name[1])):
                    done.append(name)

            at_once([lambda: take("p0"), lambda: begin("p1"), lambda: take("p2"), lambda: begin("p3")])
            assert len(done) == 2
    finally:
        sys.setswitchinterval(interval)
