"""Carries a takeover from Karpenter out, one write at a time, and waits in between. Never writes an object of Karpenter's."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from provisioner.apis import ec2, names
from provisioner.apis.ec2_hash import HASH_VERSION as CLASS_VERSION
from provisioner.apis.hash import HASH_VERSION as POOL_VERSION
from provisioner.apis.leases import SeenLease
from provisioner.apis.node_class_providers import PROVIDERS, provider_of
from provisioner.apis.reports import LEASE_NAME
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.config_maps import DataChange, change_config_map, ensure_namespace
from provisioner.state.pause import PAUSED
from provisioner.support.clock import Clock
from provisioner.takeover.claim_drift import drift_of
from provisioner.takeover.gathering import InputBuilder, leases_beside, read_cluster
from provisioner.takeover.instructions import install_dovetail, scale, suspension
from provisioner.takeover.progress import (
    EVERYTHING,
    StepKind,
    TakeoverFacts,
    TakeoverPhase,
    TakeoverRecord,
    TakeoverStep,
    next_step,
    settings_after,
)
from provisioner.takeover.takeover_input import ProgramKind, TakeoverInput
from provisioner.values.errors import UndeterminedError

LOOK_SECONDS: Final = 2.0
SETTLE_SECONDS: Final = 30.0
"""Between two releases of one run: the leader has acted by then, and the next look shows it."""
_PHASES: Final = {
    StepKind.MARK_PAUSED: TakeoverPhase.PAUSED,
    StepKind.MARK_ADOPTED: TakeoverPhase.ADOPTED,
    StepKind.FINISH: TakeoverPhase.DONE,
}
_READ: Final = (resources.NODEPOOLS, resources.NODECLAIMS, resources.EC2NODECLASSES)
NEEDED: Final = (*_READ, resources.DEPLOYMENTS)
"""Kinds of which the check must know everything before a takeover begins."""


@dataclass(frozen=True, slots=True)
class TakeoverOutcome:
    """How a run ended.

    Attributes:
        step: the last one, or the next where the run stopped before it.
        facts: by which it was chosen.
        is_late: waiting took too long.
    """

    step: TakeoverStep
    facts: TakeoverFacts
    is_late: bool = False


@dataclass
class Takeover:
    """One command's run. Not thread-safe.

    Attributes:
        say: prints a line for people.
        given: the cluster as it was checked.
        other_namespace: of a Karpenter that runs elsewhere than usual.
        patience: seconds that are waited for each thing at most.
        every: release one activity after the other, instead of one a run.
    """

    client: Client
    clock: Clock
    say: Callable[[str], object]
    given: TakeoverInput
    other_namespace: str = ""
    patience: float = 600.0
    every: bool = False
    _builder: InputBuilder = field(init=False)
    _own: SeenLease = field(init=False, default=SeenLease())

    def __post_init__(self) -> None:
        self._builder = InputBuilder(self.given.source, self.given.namespace, self.other_namespace)

    def run(self) -> TakeoverOutcome:
        """Do what is due.

        The first run holds everything, and waits until Karpenter has stopped, Dovetail leads and has taken the NodeClaims over. Each run after that
        releases one activity.

        Raises:
            UndeterminedError: as of `facts`.
            ApiError: the server did not answer, or denied a write; run it again.
        """
        prepared, released, told = False, 0, ""
        since = self.clock.monotonic()
        while True:
            facts = self.facts()
            step = next_step(facts)
            if step.kind in (StepKind.REFUSE, StepKind.DONE):
                return TakeoverOutcome(step, facts)
            if step.kind is StepKind.RELEASE and not self.every and (prepared or released):
                return TakeoverOutcome(step, facts)
            if step.text and step.text != told:
                self._tell(step, facts)
                told, since = step.text, self.clock.monotonic()
            if step.waits:
                if self.clock.monotonic() - since >= self.patience:
                    return TakeoverOutcome(step, facts, is_late=True)
                self.clock.sleep(LOOK_SECONDS)
                continue
            self._carry_out(step, facts)
            prepared |= step.kind is StepKind.MARK_ADOPTED
            if step.kind is StepKind.RELEASE:
                released += 1
                self.clock.sleep(SETTLE_SECONDS if self.every else 0.0)

    def facts(self) -> TakeoverFacts:
        """How it stands now. Cost: the Leases, NodePools, NodeClaims and EC2NodeClasses of the cluster.

        Raises:
            UndeterminedError: something may not be read, or an object cannot be decoded.
            ApiError: the server did not answer.
        """
        builder = InputBuilder(self.given.source, self.given.namespace, self.other_namespace)
        read_cluster(builder, self.client, b"", _READ)
        found = builder.built(self.clock.monotonic())
        if found.unread:
            raise UndeterminedError("; ".join(found.unread[:3]))
        record, settings = found.config_map(names.TAKEOVER_CONFIGMAP), found.config_map(names.SETTINGS_CONFIGMAP)
        own = self.client.find(resources.LEASES, LEASE_NAME, self.given.namespace)
        self._own = self._own.after(own, now := self.clock.monotonic())
        bundles = tuple(one.ca_bundle for one in self.given.settings.values() if one.ca_bundle)
        return TakeoverFacts(
            record=TakeoverRecord.of(record.data)
            if record is not None and names.TAKEOVER_PHASE in record.data
            else None,
            settings=settings.data if settings is not None else {},
            leads=leases_beside(self.client, self._builder.karpenter, self.clock),
            holder=self._own.holder,
            renews=self._own.is_renewed(now),
            installed=bool(self.given.programs_of(ProgramKind.DOVETAIL)),
            claims=found.claims,
            drift=drift_of(found.claims, found.pools, found.classes, (*bundles, self.given.authority)),
            unstamped=unstamped(found, self.given.provider),
        )

    def standing(self) -> TakeoverFacts:
        """`facts`, once it is known whether the holder of Dovetail's Lease renews it: within 15 s. Errors as of `facts`."""
        facts = self.facts()
        while self._own.is_doubtful(self.clock.monotonic()):
            self.clock.sleep(LOOK_SECONDS)
            facts = self.facts()
        return facts

    def _tell(self, step: TakeoverStep, facts: TakeoverFacts) -> None:
        self.say(f"{step.text}.")
        if step.kind is StepKind.AWAIT_STOP:
            for program in self.given.programs_of(ProgramKind.KARPENTER):
                if (held := suspension(program)) is not None:
                    self.say("\n".join((held.text, *(f"    {one}" for one in held.commands))))
                if program.replicas:
                    self.say(f"Stop Karpenter in another terminal:\n    {scale(program, 0)}")
        if step.kind is StepKind.AWAIT_LEADER and not facts.installed:
            install = install_dovetail(self.given)
            self.say("\n".join((install.text, *(f"    {one}" for one in install.commands))))

    def _carry_out(self, step: TakeoverStep, facts: TakeoverFacts) -> None:
        """One write; done twice it is the same."""
        record = facts.record
        if step.kind is StepKind.RECORD:
            ensure_namespace(self.client, self.given.namespace)
            begun = TakeoverRecord.begun(facts.claims, facts.settings, self.clock.now(), record)
            self._change(names.TAKEOVER_CONFIGMAP, lambda _: begun.data())
        elif step.kind is StepKind.PAUSE:
            self._change(names.SETTINGS_CONFIGMAP, lambda _: {PAUSED: EVERYTHING})
        elif step.kind is StepKind.RELEASE:
            self._change(
                names.SETTINGS_CONFIGMAP,
                lambda now: {PAUSED: settings_after(replace(facts, settings=now), step.activity)},
            )
        elif record is not None:
            self._change(names.TAKEOVER_CONFIGMAP, lambda _: {names.TAKEOVER_PHASE: str(_PHASES[step.kind])})

    def _change(self, name: str, change: DataChange) -> None:
        change_config_map(self.client, name, self.given.namespace, change)


def unstamped(found: TakeoverInput, provider: str) -> tuple[str, ...]:
    """NodePools and EC2NodeClasses that this provider serves and that do not carry our version of their hash; not those with fields that we do not know."""
    pools = [
        f'NodePool "{one.name}"'
        for one in found.pools
        if not one.unknown_fields
        and provider_of(one.node_class_ref) == provider
        and one.metadata.annotations.get(names.NODEPOOL_HASH_VERSION) != POOL_VERSION
    ]
    classes = [
        f'EC2NodeClass "{one.name}"'
        for one in found.classes
        if provider == PROVIDERS[ec2.GROUP, ec2.KIND]
        and not one.unknown_fields
        and one.metadata.annotations.get(ec2.HASH_VERSION_ANNOTATION) != CLASS_VERSION
    ]
    return (*pools, *classes)
