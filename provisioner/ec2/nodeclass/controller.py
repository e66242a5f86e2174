"""EC2NodeClasses: finalizer, hash, what their selectors find, conditions, and what is left at AWS when they go.

One key is a class's name. What the parts of the status mean is decided in `ec2.nodeclass.verdicts`. Source: spec/karpenter-aws.md 1.4, 1.5.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import UnsetType

from provisioner.apis import ec2, names
from provisioner.apis.conditions import ConditionSet
from provisioner.apis.ec2 import EC2NodeClass, EC2NodeClassStatus
from provisioner.apis.ec2_hash import FORMER_VERSION, claim_stamp, class_stamp
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.meta import Condition, condition, is_true
from provisioner.cloudprovider.errors import CloudError
from provisioner.ec2.launch.launch_templates import LaunchTemplates
from provisioner.ec2.launch.userdata.inputs import JoinedCluster, UserDataError
from provisioner.ec2.nodeclass import verdicts
from provisioner.ec2.nodeclass.cluster import NotKnownYet
from provisioner.ec2.nodeclass.discovery import Discovery, DiscoveryError
from provisioner.ec2.nodeclass.dry_run import Rehearsal, Rehearsed, sized
from provisioner.ec2.nodeclass.profiles import ProfileError, Profiles
from provisioner.ec2.nodeclass.subnets import Subnet
from provisioner.ec2.nodeclass.validation import (
    INVALID_USER_DATA,
    ClassGates,
    acceptance,
    unsupported_alias,
    validate,
)
from provisioner.ec2.nodeclass.verdicts import ClassFinding, using_previous_result
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import Conflict, NotFound
from provisioner.kube.events import Recorder
from provisioner.nodeclaims.writer import ClaimWriter, with_conditions
from provisioner.nodepools.controller import unknown_fields_ignored
from provisioner.runtime.object_reference import reference_of
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.metrics import GaugeSeries, gauge
from provisioner.support.workers import DONE, ReconcileResult
from provisioner.values.message import ConditionMessage, Said
from provisioner.values.printable import listed

COLLECT_SECONDS: Final = 1800.0
_WAIT_SECONDS: Final = 600.0
_RETRY_SECONDS: Final = 10.0
_VALIDATE_SECONDS: Final = 600.0
_SAID_FOR_SECONDS: Final = 3600.0
_NAMED: Final = 5
_log = logs.get_logger(__name__)
_userdata_bytes = GaugeSeries(
    gauge(
        "karpenter_ec2nodeclasses_userdata_bytes",
        "Size of the largest user data of an EC2NodeClass in bytes.",
        ("nodeclass",),
    )
)


@dataclass(frozen=True)
class NodeClassContext:
    """What the controller reads of the cluster, from caches.

    Attributes:
        node_class: the class of that name.
        cluster: that instances join; raises `NotKnownYet`.
    """

    node_class: Callable[[str], EC2NodeClass | None]
    claims: Callable[[], Iterable[NodeClaim]]
    pools: Callable[[], Iterable[NodePool]]
    cluster: Callable[[], JoinedCluster]


class NodeClassController:
    """The reconciler of EC2NodeClasses.

    Args:
        templates: the launch templates that go with their class.
        rehearsal: makes dry runs; None where they are turned off.
        writer: of NodeClaims, for their hashes.
        subnet_refresh: seconds after which subnets are looked up again.
        isolated_vpc: IAM cannot be reached: profiles are neither made nor deleted.
        reserved: whether the feature gate ReservedCapacity is on.
        formula_problem: why an expression of a class's kubelet has no value for some instance type; "" where all have.
    """

    def __init__(
        self,
        client: Client,
        around: NodeClassContext,
        discovery: Discovery,
        profiles: Profiles,
        templates: LaunchTemplates,
        rehearsal: Rehearsal | None,
        writer: ClaimWriter,
        recorder: Recorder,
        clock: Clock,
        *,
        subnet_refresh: float = 60.0,
        isolated_vpc: bool = False,
        reserved: bool = True,
        gates: ClassGates | None = None,
        formula_problem: Callable[[EC2NodeClass], str] = lambda _: "",
    ) -> None:
        self._gates, self._formula_problem = gates, formula_problem
        self._client, self._around, self._discovery = client, around, discovery
        self._profiles, self._rehearsal, self._writer = profiles, rehearsal, writer
        self._recorder, self._clock, self._templates = recorder, clock, templates
        self._subnet_refresh, self._isolated = subnet_refresh, isolated_vpc
        self._reserved = reserved
        self._set = ec2.NODECLASS_CONDITIONS if reserved else ec2.NODECLASS_CONDITIONS_WITHOUT_RESERVATIONS

    def reconcile(self, name: str) -> ReconcileResult:
        """Make one class's metadata and status true, or clean up after it."""
        node_class = self._around.node_class(name)
        if node_class is None:
            _userdata_bytes.replace(name, ())
            return DONE
        try:
            if node_class.metadata.deletion_timestamp is not None:
                return self._finish(node_class)
            return self._status(self._metadata(node_class))
        except NotFound:
            return DONE
        except Conflict:
            return ReconcileResult(requeue_after=0.2)

    # ------------------------------------------------------------------ metadata

    def _metadata(self, node_class: EC2NodeClass) -> EC2NodeClass:
        """Finalizer and hash, in one write; claims are stamped before their class."""
        metadata: dict[str, Any] = {}
        if ec2.TERMINATION_FINALIZER not in node_class.metadata.finalizers:
            metadata["finalizers"] = [*node_class.metadata.finalizers, ec2.TERMINATION_FINALIZER]
        annotations: dict[str, str] = {}
        if verdicts.holds(node_class, ec2.VALIDATION_SUCCEEDED):  # found valid, maybe by a version that knew less
            annotations |= acceptance(node_class)
        bundle = self._bundle()
        theirs = node_class.unknown_fields and ec2.HASH_ANNOTATION in node_class.metadata.annotations
        if bundle is not None and not theirs:  # a hash of fields that we do not know stays
            for claim in self._claims_of(node_class):
                self._stamp(claim, node_class, bundle)
            annotations |= class_stamp(node_class.spec, bundle)
        if not annotations.items() <= node_class.metadata.annotations.items():
            metadata["annotations"] = annotations
        if not metadata:
            return node_class
        guard = {"uid": node_class.metadata.uid, "resourceVersion": node_class.metadata.resource_version}
        return self._client.patch(resources.EC2NODECLASSES, node_class.name, {"metadata": {**metadata, **guard}})

    def _stamp(self, claim: NodeClaim, node_class: EC2NodeClass, bundle: str) -> None:
        """Bring one claim to our hash version; what was made from another spec is marked as drifted first."""
        conditions = claim.status.conditions
        drifted = condition(conditions, names.DRIFTED) is not None
        stamp = claim_stamp(claim.metadata.annotations, node_class.spec, bundle, drifted=drifted)
        if not stamp:
            return
        former = claim.metadata.annotations.get(ec2.HASH_VERSION_ANNOTATION) == FORMER_VERSION
        if former and ec2.HASH_ANNOTATION not in stamp and not drifted and is_true(conditions, names.LAUNCHED):
            marked = ConditionMessage(
                names.DRIFTED,
                names.TRUE,
                "NodeClassDrift",
                f"created from another version of EC2NodeClass {node_class.name}",
            )
            claim = self._writer.status(claim, with_conditions(claim, marked, now=self._clock.now()))
        self._writer.metadata(claim, annotations=stamp)

    def _bundle(self) -> str | None:
        try:
            return self._around.cluster().ca_bundle
        except NotKnownYet:
            return None

    def _claims_of(self, node_class: EC2NodeClass) -> list[NodeClaim]:
        return [claim for claim in self._around.claims() if refers(claim, node_class.name)]

    def _pools_of(self, node_class: EC2NodeClass) -> list[NodePool]:
        found = [pool for pool in self._around.pools() if _is_reference(pool.node_class_ref, node_class.name)]
        return sorted(found, key=lambda pool: pool.name)

    # ------------------------------------------------------------------ status

    def _status(self, node_class: EC2NodeClass) -> ReconcileResult:
        findings = self._findings(node_class)
        now = self._clock.now()
        before = node_class.status.conditions
        conditions = conditions_of(self._set, node_class, findings, now)
        status = changes(node_class.status, findings, conditions)
        if not self._reserved and node_class.status.capacity_reservations:
            status["capacityReservations"] = None
        reference = reference_of(node_class)
        for one in verdicts.worsened(before, conditions):
            self._recorder.publish(reference, "Warning", one.reason, f"{one.type}: {one.message}")
        generation = node_class.metadata.generation
        leaf = self._set.leaf(conditions, generation)
        if leaf is not None and leaf != self._set.leaf(before, generation):
            _log.warning(
                "An EC2NodeClass is not Ready", nodeclass=node_class.name, reason=leaf.reason, error=leaf.message
            )
        if node_class.unknown_fields:
            text = unknown_fields_ignored(ec2.KIND, node_class.unknown_fields)
            self._recorder.publish(reference, "Warning", "NodeClassWarning", text, ttl=_SAID_FOR_SECONDS)
        for finding in findings:
            for text in finding.warnings:
                self._recorder.publish(reference, "Warning", "NodeClassWarning", text, ttl=_SAID_FOR_SECONDS)
        if status:
            guard = {"uid": node_class.metadata.uid, "resourceVersion": node_class.metadata.resource_version}
            body = {"metadata": guard, "status": status}
            self._client.patch(resources.EC2NODECLASSES, node_class.name, body, subresource="status")
            _log.info(
                "Updated the status of an EC2NodeClass",
                nodeclass=node_class.name,
                ready=_ready(conditions),
                changed=", ".join(sorted(status)),
            )
        return ReconcileResult(
            requeue_after=min((one.look_again for one in findings if one.look_again is not None), default=None)
        )

    def _findings(self, node_class: EC2NodeClass) -> list[ClassFinding]:
        """Everything that is to be known, each for itself: a part that fails leaves the others alone."""
        places: list[Subnet] = []
        parts: list[tuple[str, Callable[[], ClassFinding]]] = [
            (ec2.AMIS_READY, lambda: self._images(node_class)),
            (ec2.PLACEMENT_GROUP_READY, lambda: self._group(node_class)),
            (ec2.SUBNETS_READY, lambda: self._subnets(node_class, places)),
            (ec2.SECURITY_GROUPS_READY, lambda: self._groups(node_class, places)),
            (ec2.INSTANCE_PROFILE_READY, lambda: self._profile(node_class)),
        ]
        if self._reserved:
            parts.insert(1, (ec2.CAPACITY_RESERVATIONS_READY, lambda: self._reservations(node_class)))
        findings = [self._found(node_class, kind, part) for kind, part in parts]
        status = with_fields(node_class, findings)
        resolved = msgspec.structs.replace(node_class, status=status)
        findings.append(self._found(node_class, ec2.VALIDATION_SUCCEEDED, lambda: self._validation(resolved, findings)))
        return findings

    def _found(self, node_class: EC2NodeClass, kind: str, part: Callable[[], ClassFinding]) -> ClassFinding:
        try:
            return part()
        except DiscoveryError as error:
            group = kind == ec2.PLACEMENT_GROUP_READY
            reason = ec2.PLACEMENT_GROUP_RESOLUTION_FAILED if group else verdicts.DISCOVERY_FAILED
            return verdicts.after_failure(node_class, kind, error, reason)
        except NotKnownYet as error:
            if verdicts.holds(node_class, kind):
                return ClassFinding(*using_previous_result(kind, str(error)), look_again=_RETRY_SECONDS)
            return ClassFinding(kind, names.UNKNOWN, "ClusterNotKnown", str(error), look_again=_RETRY_SECONDS)

    def _images(self, node_class: EC2NodeClass) -> ClassFinding:
        minor = self._around.cluster().minor
        problem = unsupported_alias(node_class, minor)
        if problem:
            return verdicts.of_unsupported_alias(problem)
        return verdicts.of_images(self._discovery.images(node_class, minor), minor)

    def _reservations(self, node_class: EC2NodeClass) -> ClassFinding:
        found = self._discovery.capacity_reservations(node_class)
        now = self._clock.now()
        change = found.next_change(now)
        seconds = None if change is None else (change - now).total_seconds()
        return verdicts.of_reservations(node_class, found, seconds)

    def _group(self, node_class: EC2NodeClass) -> ClassFinding:
        wanted = not isinstance(node_class.spec.placement_group_selector, UnsetType)
        return verdicts.of_group(self._discovery.find_placement_group(node_class), wanted=wanted)

    def _subnets(self, node_class: EC2NodeClass, places: list[Subnet]) -> ClassFinding:
        found = self._discovery.subnets(node_class)
        places.extend(found)
        return verdicts.of_subnets(found, self._subnet_refresh)

    def _groups(self, node_class: EC2NodeClass, places: Sequence[Subnet]) -> ClassFinding:
        return verdicts.of_groups(self._discovery.security_groups(node_class), places)

    def _profile(self, node_class: EC2NodeClass) -> ClassFinding:
        try:
            return verdicts.of_profile(self._profiles.ensure(node_class))
        except ProfileError as error:
            return ClassFinding(
                ec2.INSTANCE_PROFILE_READY, names.FALSE, error.reason, error.message, look_again=verdicts.MINUTE
            )

    def _validation(self, node_class: EC2NodeClass, findings: Sequence[ClassFinding]) -> ClassFinding:
        cluster = self._around.cluster()
        verdict = validate(node_class, cluster, self._gates)
        if verdict.reason:
            return _invalid(verdict.reason, verdict.message, verdict.warnings)
        waiting = verdicts.dependencies(findings)
        if waiting is not None:
            return replace(waiting, warnings=verdict.warnings)
        if problem := self._formula_problem(node_class):
            found = _invalid(
                ec2.KUBELET_EXPRESSION_EVALUATION_FAILED, Said(f"spec.kubelet: {problem}"), verdict.warnings
            )
            return replace(found, look_again=_VALIDATE_SECONDS)
        pools = self._pools_of(node_class)
        try:
            size, of_size = sized(node_class, cluster, pools)
            _userdata_bytes.replace(node_class.name, [((node_class.name,), float(size))])
            if of_size.reason:
                return _invalid(of_size.reason, of_size.message, verdict.warnings)
            rehearsed = Rehearsed() if self._rehearsal is None else self._rehearsal.run(node_class, pools, cluster)
        except UserDataError as error:
            return _invalid(INVALID_USER_DATA, Said(f"spec.userData: {error}"), verdict.warnings)
        warnings = (*verdict.warnings, *of_size.warnings, *rehearsed.warnings)
        if rehearsed.reason == ec2.INSTANCE_PROFILE_NOT_FOUND:
            self._profiles.doubt(node_class)
            return replace(_invalid(rehearsed.reason, rehearsed.message, warnings), look_again=_RETRY_SECONDS)
        if rehearsed.reason:
            return replace(_invalid(rehearsed.reason, rehearsed.message, warnings), look_again=verdicts.MINUTE)
        if verdict.kept:
            kept = ConditionMessage(ec2.VALIDATION_SUCCEEDED, names.TRUE, INVALID_USER_DATA, verdict.kept)
            return ClassFinding(*kept, look_again=_VALIDATE_SECONDS, warnings=warnings)
        return ClassFinding(ec2.VALIDATION_SUCCEEDED, names.TRUE, look_again=_VALIDATE_SECONDS, warnings=warnings)

    # ------------------------------------------------------------------ the end

    def _finish(self, node_class: EC2NodeClass) -> ReconcileResult:
        """Wait for the claims, then delete profiles, then launch templates, then let the class go."""
        if ec2.TERMINATION_FINALIZER not in node_class.metadata.finalizers:
            return DONE
        waiting = sorted(claim.name for claim in self._claims_of(node_class))
        if not waiting:  # the caches may not know the newest yet, and what follows cannot be undone
            fresh = self._client.list(resources.NODECLAIMS)
            waiting = sorted(claim.name for claim in fresh if refers(claim, node_class.name))
        reference = reference_of(node_class)
        if waiting:
            self._recorder.publish(
                reference,
                "Normal",
                "WaitingOnNodeClaimTermination",
                f"Waiting on NodeClaim termination for {listed(waiting, _NAMED)}",
            )
            return ReconcileResult(requeue_after=_WAIT_SECONDS)
        try:
            if not self._isolated:
                self._profiles.delete_all(node_class)
            self._templates.drop(node_class.name)
        except CloudError as error:
            self._recorder.publish(
                reference,
                "Warning",
                "CleanUpFailed",
                f"Failed to clean up AWS resources; retrying in {_RETRY_SECONDS:g} s: {error}",
            )
            return ReconcileResult(requeue_after=_RETRY_SECONDS)
        left = [one for one in node_class.metadata.finalizers if one != ec2.TERMINATION_FINALIZER]
        guard = {"uid": node_class.metadata.uid, "resourceVersion": node_class.metadata.resource_version}
        self._client.patch(resources.EC2NODECLASSES, node_class.name, {"metadata": {**guard, "finalizers": left}})
        _userdata_bytes.replace(node_class.name, ())
        _log.info("Cleaned up EC2NodeClass", nodeclass=node_class.name)
        return DONE


class ProfileCollector:
    """Deletes instance profiles of the cluster that no class and no claim uses any more: those of roles that a class once had.

    Not for an isolated VPC.
    """

    def __init__(self, client: Client, profiles: Profiles) -> None:
        self._client, self._profiles = client, profiles

    def poll(self) -> float:
        """One round; seconds until the next one. What is in use is read from the API server, not from caches. Raises `DiscoveryError`."""
        used = {one.status.instance_profile for one in self._client.list(resources.EC2NODECLASSES)}
        for claim in self._client.list(resources.NODECLAIMS):
            used.add(claim.metadata.annotations.get(ec2.INSTANCE_PROFILE_ANNOTATION, ""))
        for name in self._profiles.collect(used):
            _log.info("Deleted an unused instance profile", profile=name)
        return COLLECT_SECONDS


def refers(claim: NodeClaim, name: str) -> bool:
    """Whether a claim is of the EC2NodeClass `name`."""
    return _is_reference(claim.spec.node_class_ref, name)


def _is_reference(reference: Any, name: str) -> bool:
    return (reference.group, reference.kind, reference.name) == (ec2.GROUP, ec2.KIND, name)


def conditions_of(
    kinds: ConditionSet, node_class: EC2NodeClass, findings: Iterable[ClassFinding], now: datetime
) -> tuple[Condition, ...]:
    """The class's conditions after these findings."""
    generation = node_class.metadata.generation
    created = node_class.metadata.creation_timestamp or now
    conditions = kinds.initialise(node_class.status.conditions, generation=generation, created=created)
    for one in findings:
        conditions = kinds.set(
            conditions, one.kind, one.status, one.reason, one.message, generation=generation, now=now
        )
    return conditions


def with_fields(node_class: EC2NodeClass, findings: Iterable[ClassFinding]) -> EC2NodeClassStatus:
    """The class's status with what was found."""
    wire: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(node_class.status))
    for one in findings:
        wire.update(one.fields)
    return msgspec.convert({key: value for key, value in wire.items() if value is not None}, EC2NodeClassStatus)


def changes(
    before: EC2NodeClassStatus, findings: Iterable[ClassFinding], conditions: tuple[Condition, ...]
) -> dict[str, Any]:
    """The part of a merge patch that brings the status up to date; empty when it is."""
    known: Mapping[str, Any] = msgspec.json.decode(msgspec.json.encode(before))  # lists, as they are in `fields`
    changed = {
        key: value
        for one in findings
        for key, value in one.fields.items()
        if (known.get(key) or None) != (value or None)
    }
    if conditions != before.conditions:
        changed["conditions"] = [msgspec.to_builtins(one) for one in conditions]
    return changed


def _invalid(reason: str, message: str, warnings: tuple[str, ...]) -> ClassFinding:
    return ClassFinding(
        ec2.VALIDATION_SUCCEEDED, names.FALSE, reason, message, look_again=_VALIDATE_SECONDS, warnings=warnings
    )


def _ready(conditions: tuple[Condition, ...]) -> str:
    found = condition(conditions, names.READY)
    return names.UNKNOWN if found is None else found.status
