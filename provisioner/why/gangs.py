"""What the answers about pods and nodes say of gangs. Pure."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from statistics import median
from typing import Final

from provisioner.apis import names
from provisioner.apis.gangs import group_of, told
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.launch_sets import sets_of
from provisioner.apis.meta import condition
from provisioner.apis.pods import Pod
from provisioner.disruption.gangs import units
from provisioner.lifecycle.gang_decisions import HOLD_SECONDS
from provisioner.state.gang_places import GangStanding, GangState
from provisioner.state.snapshot import NodeView
from provisioner.values.message import Said
from provisioner.values.printable import counted, listed
from provisioner.why.answers import WhyReason
from provisioner.why.instant import Instant

_FEW: Final = 3


def gang_of(instant: Instant, pod: Pod) -> GangStanding | None:
    """The gang of a pod that is not bound; None where it is of none."""
    key = "" if pod.node_name else group_of(pod)
    return instant.gang(key) if key else None


def gang_in_words(one: GangStanding) -> str:
    """A gang and how many of its pods have places, in a line."""
    group = one.group
    needed = f", {group.minimum} needed" if group.minimum is not None else ""
    return Said(f"{told(group.key)}: {counted(group.members, 'pod')}{needed}, {one.placed} have places")


def launching(instant: Instant, one: GangStanding) -> tuple[WhyReason, ...]:
    """How many of the nodes are launched that come for a gang, when they are usually ready, and what is missing for the others."""
    if one.state is not GangState.LAUNCHING:
        return ()
    count = sum(node.launched for node in one.coming)
    text = Said(
        f"{count} of {counted(len(one.coming), 'new node')} for {told(one.group.key)} {'is' if count == 1 else 'are'} launched; its pods can run "
        "there when all of them are ready"
    )
    if expected := _expected(instant, [node.claim for node in one.coming]):
        text = Said(f"{text}. {expected}")
    return (WhyReason(type="GangLaunching", message=text, until=_held_until(instant, one)), *_shortages(one))


def _shortages(one: GangStanding) -> Iterator[WhyReason]:
    """What keeps NodeClaims of a gang from being launched, as their conditions say."""
    short: dict[tuple[str, str], list[str]] = {}
    for claim in [node.claim for node in one.coming if not node.launched]:
        said = condition(claim.status.conditions, names.LAUNCHED)
        if said is not None and said.reason == names.INSUFFICIENT_CAPACITY:
            short.setdefault((claim.pool, said.message), []).append(claim.name)
    for (pool, message), claims in short.items():
        text = Said(f"no capacity for NodeClaim {listed(sorted(claims), _FEW)} of NodePool {pool}: {message}")
        yield WhyReason(type=names.INSUFFICIENT_CAPACITY, message=text, node_pools=(pool,))


def _expected(instant: Instant, coming: Iterable[NodeClaim]) -> str:
    """When nodes that are all launched are usually ready, going by those of their NodePools; "" where nobody knows, or it should have been. O(nodes)."""
    launched = [(claim.pool, _since(claim, names.LAUNCHED)) for claim in coming]
    took: dict[str, list[float]] = {pool: [] for pool, _ in launched}
    for view in instant.snapshot.nodes:
        claim = view.claim
        if claim is not None and claim.pool in took and (seconds := _seconds_to_ready(claim)) is not None:
            took[claim.pool].append(seconds)
    usually = {pool: median(every) for pool, every in took.items() if every}
    found: list[tuple[float, float, str]] = []
    for pool, since in launched:
        if pool not in usually or since is None:
            return ""
        found.append((usually[pool] - (instant.snapshot.at - since).total_seconds(), usually[pool], pool))
    left, usual, pool = max(found, default=(0.0, 0.0, ""))
    if left < 1:
        return ""
    return Said(
        f"Nodes of NodePool {pool} usually take {usual:.0f} s from launch until they are ready: about {left:.0f} s are left"
    )


def _seconds_to_ready(claim: NodeClaim) -> float | None:
    launched, ready = _since(claim, names.LAUNCHED), _since(claim, names.INITIALIZED)
    return None if launched is None or ready is None else max(0.0, (ready - launched).total_seconds())


def _since(claim: NodeClaim, what: str) -> datetime | None:
    said = condition(claim.status.conditions, what)
    return said.last_transition_time if said is not None and said.status == names.TRUE else None


def waits_for_others(instant: Instant, node: NodeView) -> Iterator[WhyReason]:
    """For which other nodes of its gangs a node waits that was not let in yet."""
    if node.claim is None:
        return
    for key in dict.fromkeys(one.group for one in sets_of(node.claim.metadata.annotations)):
        found = instant.gang(key)
        coming = found.coming if found is not None else ()
        others = [one for one in coming if one.claim.name != node.claim.name and not one.ready]
        if found is not None and others and len(others) < len(coming):
            text = Said(f"it waits for {counted(len(others), 'other node')} of {told(key)}")
            yield WhyReason(type="WaitsForGang", message=text, until=_held_until(instant, found))


def moves_with_others(instant: Instant, node: NodeView) -> Iterator[WhyReason]:
    """With which other nodes a node goes, or not at all."""
    unit = units(instant.snapshot).get(node.key.name)
    others = len(unit.nodes) - 1 if unit is not None else 0
    if unit is not None and others:
        text = Said(
            f"pods of {told(unit.group)} (disruptionMode all) run on it, so it can only be disrupted together with {counted(others, 'other node')}"
        )
        yield WhyReason(type="MovesTogether", message=text)


def _held_until(instant: Instant, one: GangStanding) -> datetime | None:
    """Until when launched nodes wait for the others; None where none is launched, or where some that did not come were replaced."""
    said = [condition(node.claim.status.conditions, names.LAUNCHED) for node in one.coming if node.launched]
    times = [each.last_transition_time for each in said if each is not None and each.last_transition_time is not None]
    until = min(times) + timedelta(seconds=HOLD_SECONDS) if times else None
    return until if until is not None and until > instant.snapshot.at else None
