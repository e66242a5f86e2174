"""Defects, made in the loaded code by name. Each must be caught by some interleaving.

A mutant takes away one guard. Where two guards stand behind each other, as caches and a fresh list, both are taken away.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Final

import msgspec

from provisioner.apis.budget_index import PodBudgets
from provisioner.apis.command import CommandPhase
from provisioner.apis.pods import DoNotDisrupt, Guard
from provisioner.disruption import candidates, replacement
from provisioner.disruption.acceptance import AcceptanceRule
from provisioner.disruption.budget_ledger import BudgetLedger
from provisioner.disruption.budgets import AllowanceLedger
from provisioner.disruption.commands import inspector, progress, validation
from provisioner.disruption.commands import queue as commands
from provisioner.disruption.commands.book import CommandBook
from provisioner.disruption.commands.inspector import CommandInspector
from provisioner.disruption.commands.progress import CommandVerdict, ReplacementState
from provisioner.disruption.commands.queue import CommandQueue
from provisioner.disruption.controller import DisruptionController
from provisioner.disruption.methods import emptiness
from provisioner.kube import resources
from provisioner.kube.lease import Fence, LeaseTerm
from provisioner.lifecycle import gang_decisions, gang_keeper
from provisioner.lifecycle.gang_decisions import GangDecision, GangTurn
from provisioner.lifecycle.registration import Registrar
from provisioner.provisioning import provisioner as planning
from provisioner.state import disruption_commands as known_commands
from provisioner.state import launch_sets
from provisioner.state.launch_sets import LaunchSets
from provisioner.support.workers import DONE
from provisioner.termination import eviction_queue as drain
from provisioner.termination.controller import Termination
from provisioner.termination.disrupted_taint import DisruptedTaints
from provisioner.termination.eviction_queue import Evictions
from provisioner.termination.terminator import Terminator

Mutant = Callable[[], None]


class NoLock:
    """Locks nothing."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


def _set(owner: Any, name: str, value: Any) -> None:
    assert hasattr(owner, name), f"{owner} has no {name}: the mutant would change nothing"
    setattr(owner, name, value)


def _ledger_lock() -> None:
    """And the lock under which disruption begins commands: either keeps two threads from the same allowance."""
    ledger, asker = BudgetLedger.__init__, DisruptionController.__init__

    def unlocked_ledger(self: BudgetLedger, *args: Any, **kwargs: Any) -> None:
        ledger(self, *args, **kwargs)
        self._lock = NoLock()  # type: ignore[assignment]

    def unlocked_asker(self: DisruptionController, *args: Any, **kwargs: Any) -> None:
        asker(self, *args, **kwargs)
        self._beginning = NoLock()  # type: ignore[assignment]

    _set(BudgetLedger, "__init__", unlocked_ledger)
    _set(DisruptionController, "__init__", unlocked_asker)


def _ledger_of_proposer() -> None:
    """What is proposed is admitted by a snapshot that was taken when this process began to ask."""

    def old(self: Any) -> AllowanceLedger:
        if not hasattr(self, "first"):
            self.first = self._cluster.snapshot()
        return AllowanceLedger(self.first, self._taken)

    _set(BudgetLedger, "_fresh", old)


def _budgets() -> None:
    _set(AllowanceLedger, "refusal", lambda *_: "")
    _set(AllowanceLedger, "allowed", lambda *_: 100)


def _fence() -> None:
    _set(Fence, "check", lambda _: None)
    _set(LeaseTerm, "check", lambda _: None)


def _fresh_list() -> None:
    _set(CommandInspector, "_sighted", lambda self, one: self._sighted_in_caches(one.name))


def _validation() -> None:
    _set(CommandInspector, "validated", lambda *_: CommandVerdict())


def _pod_budgets_fresh() -> None:
    """PodDisruptionBudgets are not asked, neither for candidates nor in the last look."""
    _set(CommandInspector, "_budgets", lambda *_: (PodBudgets({}), ""))
    _set(PodBudgets, "holding", lambda *_, **__: ())


def _do_not_disrupt() -> None:
    """Of pods, for candidates and in the last look; a drain still keeps it."""
    _set(validation, "do_not_disrupt", lambda *_: False)
    _set(candidates, "read_do_not_disrupt", lambda _: DoNotDisrupt(Guard.ABSENT, None))


def _drain_ignores_protection() -> None:
    _do_not_disrupt()
    _set(drain, "is_evictable", lambda *_: True)


def _resume() -> None:
    """Who leads next does not know what to do with a command that it did not begin."""
    known = CommandBook.known

    def only_mine(self: CommandBook, holder: str) -> Any:
        first = self._cluster.command_held_by(holder)
        if first is not None and first.record.id not in self._memories:
            return None
        return known(self, holder)

    _set(CommandBook, "known", only_mine)


def _heal() -> None:
    _set(CommandQueue, "heal", lambda *_: DONE)


def _heal_commands() -> None:
    """What belongs to a live command is taken back, too."""
    left_over = CommandQueue._is_left_over

    def any_marked(self: CommandQueue, key: str) -> bool:
        return left_over(self, key) or self._cluster.command_of(key) is not None

    review = CommandQueue.review

    def review_all(self: CommandQueue, snapshot: Any) -> None:
        review(self, snapshot)
        for command in snapshot.commands:
            self.heals.offer(command.record.holder)

    _set(CommandQueue, "_is_left_over", any_marked)
    _set(CommandQueue, "review", review_all)


def _commit() -> None:
    """Nothing is written before it is done."""
    _set(CommandQueue, "_commit", lambda *_: None)


def _record_ignored() -> None:
    """A record that is read on a NodeClaim counts for nothing."""
    _set(known_commands, "command_on", lambda *_: None)


def _taint() -> None:
    """Whether a Node is closed is not looked at, so none is."""
    _set(commands, "is_disrupted", lambda _: True)
    _set(inspector, "is_disrupted", lambda _: True)


def _drain() -> None:
    """Nobody waits for pods."""
    _set(Termination, "_drains", lambda *_: False)
    _set(Terminator, "_held", lambda *_: None)


def _replacement_first() -> None:
    """Replacements count as soon as they are created."""
    state = CommandInspector.replacement

    def hasty(self: CommandInspector, record: Any, name: str, memory: Any) -> ReplacementState:
        found = state(self, record, name, memory)
        return ReplacementState.INITIALIZED if found is ReplacementState.COMING else found

    _set(CommandInspector, "replacement", hasty)


def _no_replacement() -> None:
    """Nodes go without what would replace them."""
    begin = CommandQueue._announced

    def bare(self: CommandQueue, record: Any, proposal: Any, memory: Any) -> str:
        proposal = dataclasses.replace(proposal, replacements=())
        return begin(self, record, proposal, memory)

    _set(CommandQueue, "_announced", bare)


def _roll_back() -> None:
    """A command that cannot come to its end is forgotten, and its record stays."""
    _set(CommandQueue, "_call_off", lambda self, command, memory, why, record=None: DONE)


def _seal() -> None:
    """Candidates are deleted one after another without a word of it before."""
    following = progress.next_step

    def unsealed(record: Any, facts: Any) -> Any:
        found = following(record, facts)
        if found.step is progress.CommandStep.SEAL:
            return progress.Next(progress.CommandStep.DELETE, tuple(one.name for one in facts.candidates))
        return found

    _set(commands, "next_step", unsealed)


def _phase_ignored() -> None:
    """A command that was sealed is judged again by who leads next."""
    following = progress.next_step

    def judged(record: Any, facts: Any) -> Any:
        return following(msgspec.structs.replace(record, phase=CommandPhase.COMMITTED), facts)

    _set(commands, "next_step", judged)


def _failed_replacements() -> None:
    """A replacement that failed is waited for, for ever."""
    state = CommandInspector.replacement

    def patient(self: CommandInspector, record: Any, name: str, memory: Any) -> ReplacementState:
        found = state(self, record, name, memory)
        return ReplacementState.COMING if found is ReplacementState.FAILED else found

    _set(CommandInspector, "replacement", patient)
    _set(CommandInspector, "_stalled", lambda *_: "")


def _delete_pods() -> None:
    """Pods are deleted, and no budget is asked."""
    from provisioner.kube.client import Client

    def delete(self: Client, name: str, namespace: str, uid: str) -> None:
        self.delete(resources.PODS, name, namespace, uid=uid)

    _set(Client, "evict", delete)


def _evicts_early() -> None:
    """Pods are evicted as soon as a command begins."""
    mark = CommandQueue._mark

    def hasty(self: CommandQueue, record: Any, those: Any) -> None:
        mark(self, record, those)
        for name in record.candidate_names:
            claim = self._cluster.claim(name)
            node = self._cluster.node_of(claim) if claim is not None else None
            if node is not None:
                self.inspector._terminator._evictions.add(self._cluster.bound_to(node.metadata.name))

    _set(CommandQueue, "_mark", hasty)


def _emptiness() -> None:
    """Nodes with pods count as empty."""
    for module in (emptiness, candidates):
        if hasattr(module, "is_empty"):
            _set(module, "is_empty", lambda *_: True)
    from provisioner.disruption import controller as disruption

    _set(disruption, "is_empty", lambda *_: True)
    _set(validation, "is_reschedulable", lambda _: False)


def _cost() -> None:
    """Any move pays: neither the rule, nor the bound of what may be launched says no."""
    _set(AcceptanceRule, "refusal", lambda *_: "")
    _set(AcceptanceRule, "gain", lambda *_: 1.0)
    _set(replacement, "settled", lambda _, claims, *__: claims)


def _unregistered() -> None:
    """Nodes are never let in."""
    _set(Registrar, "_let_in", lambda *_: None)


def _reopen() -> None:
    """The taint of what is called off stays."""
    _set(DisruptedTaints, "reopen", lambda self, node: node)


def _refused_eviction() -> None:
    """A refused eviction is not tried again."""
    evict = Evictions._evict

    def once(self: Evictions, uid: str, pod: Any) -> Any:
        evict(self, uid, pod)
        self._leaving[uid] = (float("inf"), None)
        return DONE

    _set(Evictions, "_evict", once)


def _part_of_a_set() -> None:
    """What is written of a launch set is launched, whatever has become of the rest."""
    _set(LaunchSets, "is_broken", lambda *_: False)
    _set(LaunchSets, "is_coming", lambda *_: False)


def _all_at_once() -> None:
    """The others of a launch set do not wait for its scarcest."""
    _set(LaunchSets, "awaits_scarcer", lambda *_: False)


def _plenty_first() -> None:
    """What the most offerings give is launched first."""
    found = launch_sets.scarcity_of
    _set(launch_sets, "scarcity_of", lambda claim: (True, -found(claim)[1]))


def _no_set() -> None:
    """The NodeClaims of a gang do not say that they belong together."""
    _set(planning, "launch_sets", lambda claims, *_: ((),) * len(claims))


def _never_given_up() -> None:
    """What is launched for a gang waits for the rest, for ever."""
    _set(gang_keeper, "decide", lambda *_, **__: GangDecision(GangTurn.WAIT))


def _part_stays() -> None:
    """Where a gang is given up, what is launched stays."""
    found = gang_decisions.given_up

    def part(gang: Any) -> tuple[str, ...]:
        begun = {one.claim.name for one in gang.nodes if one.begun}
        return tuple([name for name in found(gang) if name not in begun])

    _set(gang_decisions, "given_up", part)
    _set(gang_keeper, "given_up", part)


def _let_in_one_by_one() -> None:
    """A Node of a gang is let in although others of it are not ready."""
    _set(Registrar, "_awaits_gang", lambda *_: False)
    _set(Registrar, "_closes_at", lambda self, *_: self._clock.monotonic())


MUTANTS: Final[dict[str, Mutant]] = {
    "ledger lock removed": _ledger_lock,
    "ledger admits by an old snapshot": _ledger_of_proposer,
    "budgets ignored": _budgets,
    "fence not asked": _fence,
    "fresh list removed": _fresh_list,
    "validation removed": _validation,
    "PDB check removed": _pod_budgets_fresh,
    "do-not-disrupt ignored": _do_not_disrupt,
    "do-not-disrupt ignored by the drain": _drain_ignores_protection,
    "resume removed": _resume,
    "healing removed": _heal,
    "healing takes back live commands": _heal_commands,
    "commit record not written": _commit,
    "commit record ignored": _record_ignored,
    "taint check removed": _taint,
    "drain removed": _drain,
    "replacement not awaited": _replacement_first,
    "replacements left out": _no_replacement,
    "roll-back removed": _roll_back,
    "seal removed": _seal,
    "seal ignored": _phase_ignored,
    "failed replacements ignored": _failed_replacements,
    "pods deleted instead of evicted": _delete_pods,
    "evicted before the verdict": _evicts_early,
    "nodes with pods count as empty": _emptiness,
    "cost not compared": _cost,
    "nodes never let in": _unregistered,
    "taint stays after a roll-back": _reopen,
    "refused evictions forgotten": _refused_eviction,
    "a part of a launch set is launched": _part_of_a_set,
    "the scarcest of a launch set not awaited": _all_at_once,
    "the scarcest of a launch set last": _plenty_first,
    "gangs without launch sets": _no_set,
    "gangs never given up": _never_given_up,
    "a part of a gang stays": _part_stays,
    "nodes of a gang let in one by one": _let_in_one_by_one,
}
