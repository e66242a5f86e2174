"""Which nodes are broken, as far as this process has seen: `NodeHealth`."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from fractions import Fraction
from typing import Final, TypeAlias

from provisioner.apis import names
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.meta import Condition, condition
from provisioner.apis.reboot import BOOT_ID_LENGTH, reboots_of
from provisioner.cloudprovider.types import RepairPolicy
from provisioner.disruption.repair_policies import Illness, Illnesses, RepairPolicySet, Sighted, after_reboot
from provisioner.options import Options
from provisioner.state.cluster import Cluster
from provisioner.state.snapshot import Snapshot
from provisioner.support.clock import Clock

_Key: TypeAlias = tuple[str, str, str, datetime | None]
"""The UID of a Node, and of a condition the type, the status and since when."""


def repair_policies_of(options: Options, policies: Sequence[RepairPolicy]) -> tuple[RepairPolicy, ...]:
    """Which conditions mean a broken node, and for how long they must last, as the program was started; none where the gate NodeRepair is off."""
    if not options.feature_gates.node_repair:
        return ()
    if not options.repair_timeout:
        return tuple(policies)
    return tuple(replace(one, toleration=options.repair_timeout) for one in policies)


def share_of(options: Options) -> Fraction:
    """Above which share of unhealthy nodes none is repaired: exactly what the flag says."""
    return Fraction(str(options.repair_breaker))


class NodeHealth:
    """Remembers when it first saw each condition as it is: kubelets have clocks of their own. Any thread may ask.

    Args:
        policies: which conditions mean a broken node.

    Raises:
        ValueError: the policies are no set.
    """

    def __init__(self, cluster: Cluster, clock: Clock, policies: Sequence[RepairPolicy]) -> None:
        self._cluster, self._clock = cluster, clock
        self._policies: Final = RepairPolicySet(policies)
        self._lock = threading.Lock()
        self._seen: dict[_Key, datetime] = {}

    def at(self, snapshot: Snapshot) -> Illnesses:
        """The broken nodes of an instant that have a NodeClaim. Cost: O(nodes), and what each of their conditions takes."""
        found = {
            node.key.name: (node.claim, self._cluster.node(node.name))
            for node in snapshot.nodes
            if node.claim is not None and node.name and (self._policies.kinds or after_reboot(node.claim) is not None)
        }
        ill: dict[str, Illness] = {}
        now, before, seen = self._clock.now(), self._seen, dict[_Key, datetime]()
        for name, (claim, node) in found.items():
            if node is None:
                continue
            conditions = self._conditions(node)
            for key, _ in conditions:
                seen[key] = before.get(key, now)
            sighted: list[Sighted] = [(one, seen[key]) for key, one in conditions]
            if (wrong := self._illness(claim, node, sighted, now)) is not None:
                ill[name] = wrong
        with self._lock:  # another thread may have looked meanwhile: the first sight counts
            self._seen = {key: min(at, self._seen.get(key, at)) for key, at in seen.items()}
        return ill

    def _illness(self, claim: NodeClaim, node: Node, sighted: list[Sighted], now: datetime) -> Illness | None:
        told = condition(claim.status.conditions, names.REBOOTING)
        ended = told.last_transition_time if told is not None and told.status == names.FALSE else None
        wrong = self._policies.illness(sighted, node.metadata.creation_timestamp, ended)
        failed = after_reboot(claim)
        if wrong is None and failed is None:
            return None
        matches = (*(wrong.matches if wrong is not None else ()), *((failed,) if failed is not None else ()))
        return Illness(
            matches,
            may_reboot=0 < len(node.status.node_info.boot_id) <= BOOT_ID_LENGTH and reboots_of(claim).may_begin(now),
        )

    def is_broken(self, node: Node) -> bool:
        """Whether any of its conditions means a broken node, however short it has lasted."""
        now = self._clock.now()
        return self._policies.illness([(one, now) for one in node.status.conditions], None) is not None

    def _conditions(self, node: Node) -> list[tuple[_Key, Condition]]:
        mine = (one for one in node.status.conditions if one.type in self._policies.kinds)
        return [((node.metadata.uid, one.type, one.status, one.last_transition_time), one) for one in mine]
