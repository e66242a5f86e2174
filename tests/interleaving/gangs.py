"""Gangs: a market that runs out of instances, and who looks for parts of gangs that are paid for in vain."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from provisioner.apis import names
from provisioner.apis.gangs import minimum_of
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.launch_sets import LaunchSet, sets_of
from provisioner.apis.plan import decode_plan
from provisioner.cloudprovider.errors import InsufficientCapacityError
from provisioner.cloudprovider.kwok.provider import CLAIM_ANNOTATION, KwokProvider, node_name_of
from provisioner.cloudprovider.types import InstanceType, LaunchedInstance
from provisioner.lifecycle.gang_decisions import HOLD_SECONDS
from provisioner.simulator.api_server import ApiServer, ServerChange, Wire
from tests.interleaving.place import is_ready
from tests.interleaving.threads import STAGE

GRACE_SECONDS: Final = 30.0
"""For so long a part of a gang may be there after what was launched has waited for the rest."""
RETRY_SECONDS: Final = 2.0
HEAD_START_SECONDS: Final = 2.0
"""For so long at least the others of a set wait for its scarcest, from when all of it are written."""


class Market:
    """What can be had.

    Attributes:
        most: so many instances at a time; None while there is no shortage.
    """

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self.most: int | None = None
        self._none: tuple[InstanceType, ...] = ()

    @property
    def is_sold_out(self) -> bool:
        return self.most is not None and len(self._server.objects["nodes"]) >= self.most

    def around(self, provider: KwokProvider) -> KwokProvider:
        """A provider that knows when there is nothing left, as one does whose last request was refused."""
        create, types = provider.create, provider.instance_types

        def asked(claim: NodeClaim) -> LaunchedInstance:
            if self.is_sold_out and node_name_of(claim.metadata.name) not in self._server.objects["nodes"]:
                raise InsufficientCapacityError(claim.metadata.name, "all are sold out", RETRY_SECONDS)
            return create(claim)

        def left(pool: NodePool) -> tuple[InstanceType, ...]:
            found = types(pool)
            if not self.is_sold_out:
                return found
            if not self._none:
                self._none = tuple(
                    replace(kind, offerings=tuple(replace(one, available=False) for one in kind.offerings))
                    for kind in found
                )
            return self._none

        provider.create, provider.instance_types = asked, left  # type: ignore[method-assign]
        return provider


class GangLaw:
    """No half gang. Reads the server's objects alone.

    kube-scheduler knows nothing of gangs of annotations: it binds their pods one by one, to whatever room there is. So a NodeClaim has served its gang once
    its Node was let in together with all others, or the gang ran; and one that has ever been planned for other pods, too, may stay for these.

    Attributes:
        disturbed_at: when the last fault was over.
        seen: what has happened.
    """

    def __init__(self, server: ApiServer, broken: Callable[[str], None], seen: Counter[str]) -> None:
        self._server, self._broken, self.seen = server, broken, seen
        self.disturbed_at = 0.0
        self._written: defaultdict[str, set[str]] = defaultdict(set)  # by id of a set: NodeClaims that ever were
        self._whole_at: dict[str, float] = {}  # by id of a set: when the last NodeClaim of it was written
        self._of: defaultdict[str, set[str]] = defaultdict(set)  # by gang, likewise
        self._served: set[str] = set()  # NodeClaims
        self._shared: set[str] = set()
        self._since: dict[str, float] = {}  # NodeClaim -> since when it is paid for in vain

    # ------------------------------------------------------------------ after every change

    def changed(self, change: ServerChange) -> None:
        """A gang's NodeClaims are of a set, all of which are written before one is launched, and ready before one is let in."""
        if change.after is None:
            return
        if change.plural == "nodeclaims":
            self._planned(change.name, change.after, new=change.before is None)
        elif change.plural == "nodes":
            claim = change.after["metadata"].get("annotations", {}).get(CLAIM_ANNOTATION, "")
            if change.before is None:
                self._launched(claim)
            elif _is_shut(change.before) and not _is_shut(change.after):
                self._let_in(claim)

    def _planned(self, name: str, claim: Wire, *, new: bool) -> None:
        sets, gangs = _sets(claim), self._gangs()
        for one in sets if new else ():
            self._written[one.id].add(name)
            self._whole_at[one.id] = STAGE.seconds
            self._of[one.group].add(name)
            self.seen["launch sets" if one.nodes > 1 else "launch sets of one"] += len(self._written[one.id]) == 1
        text = claim["metadata"].get("annotations", {}).get(names.PLAN_ANNOTATION)
        planned = {uid for entry in decode_plan(text).pods for uid in entry.uids} if text else set()
        mine = {key: {one["metadata"]["uid"] for one in members} & planned for key, members in gangs.items()}
        if len(sets) > 1 or planned - set().union(*[mine.get(one.group, set()) for one in sets]):
            self._shared.add(name)
        for key, members in gangs.items() if new else ():
            if mine[key] and not _bound(members) and all(one.group != key for one in sets):
                self._broken(f"NodeClaim {name} is for pods of {key}, and of no launch set of it")

    def _launched(self, name: str) -> None:
        claim = self._server.get("nodeclaims", name)
        for one in _sets(claim) if claim is not None else ():
            if (written := len(self._written[one.id])) < one.nodes:
                self._broken(
                    f"NodeClaim {name} was launched, and of its launch set {written} of {one.nodes} were written"
                )
            self._in_order(name, one)

    def _in_order(self, name: str, one: LaunchSet) -> None:
        """The scarcest of a set have their instances before any other of it, unless these wait for an answer for too long."""
        there = {mate: each for mate in self._written[one.id] if _stays(each := self._server.get("nodeclaims", mate))}
        scarce = {mate: _offerings(each).bit_length() for mate, each in there.items() if each is not None}
        if name not in scarce or scarce[name] == min(scarce.values()):
            return
        self.seen["launched after scarcer ones"] += 1
        first = [mate for mate, number in scarce.items() if number == min(scarce.values())]
        open_ = sorted(mate for mate in first if self._server.get("nodes", node_name_of(mate)) is None)
        if open_ and STAGE.seconds - self._whole_at[one.id] < HEAD_START_SECONDS:
            self._broken(f"NodeClaim {name} was launched before {open_[0]}, which is scarcer")

    def _let_in(self, name: str) -> None:
        claim, gangs = self._server.get("nodeclaims", name), self._gangs()
        for one in _sets(claim) if claim is not None else ():
            there = {mate for mate in self._of[one.group] if _stays(self._server.get("nodeclaims", mate))}
            late = {mate for mate in there if one.nodes > 1 and not self._is_ready(mate)}
            if len(there) >= one.nodes and not late:
                self._served |= there
            least, members = minimum_of(one.group) or 0, gangs.get(one.group, [])
            if self._written[one.id] <= there and _bound(members) < least <= len(members):
                self.seen["nodes of gangs let in"] += 1
                for mate in sorted(late & self._written[one.id]):
                    self._broken(f"the Node of NodeClaim {name} was let in before that of {mate} was ready")

    def _is_ready(self, name: str) -> bool:
        node = self._server.get("nodes", node_name_of(name))
        return node is not None and is_ready(node)

    # ------------------------------------------------------------------ as time goes on

    def look(self) -> None:
        """No part of a gang is there for longer than the others are waited for."""
        now, gangs = STAGE.seconds, self._gangs()
        enough = {key for key, members in gangs.items() if _bound(members) >= (minimum_of(key) or 0)}
        parts = {name for name in self._instances() if self._is_part(name, gangs, enough)}
        self._since = {name: self._since.get(name, now) for name in parts}
        for name, since in self._since.items():
            if now - max(since, self.disturbed_at) > HOLD_SECONDS + GRACE_SECONDS:
                self._broken(f"NodeClaim {name} is a part of a gang, and waits for the rest since {since:.0f} s")

    def _is_part(self, name: str, gangs: dict[str, list[Wire]], enough: set[str]) -> bool:
        claim = self._server.objects["nodeclaims"][name]
        groups = {one.group for one in _sets(claim)}
        if groups & enough:
            self._served.add(name)
        if not groups & gangs.keys() or name in self._served | self._shared:
            return False
        node = claim.get("status", {}).get("nodeName", "") or node_name_of(name)
        there = [one for one in self._server.objects["pods"].values() if one["spec"].get("nodeName") == node]
        complete = any(len(gangs[key]) >= (minimum_of(key) or 0) for key in groups & gangs.keys())
        return complete and all(_gang_of(one) in groups for one in there)

    def _instances(self) -> Iterable[str]:
        """NodeClaims that have one and keep it."""
        return [
            name
            for name, one in self._server.objects["nodeclaims"].items()
            if _stays(one) and one.get("status", {}).get("providerID")
        ]

    def _gangs(self) -> dict[str, list[Wire]]:
        """Their pods, by key."""
        found: defaultdict[str, list[Wire]] = defaultdict(list)
        for pod in self._server.objects["pods"].values():
            if (key := _gang_of(pod)) and "deletionTimestamp" not in pod["metadata"]:
                found[key].append(pod)
        return found


def _gang_of(pod: Wire) -> str:
    """As the reference says, and nobody else's code: namespace, name, controller and minimum."""
    meta = pod["metadata"]
    notes = meta.get("annotations") or {}
    if names.GANG not in notes:
        return ""
    return (
        f"{meta['namespace']}/gang/{notes[names.GANG]}/{meta['ownerReferences'][0]['uid']}/{notes[names.GANG_MINIMUM]}"
    )


def _offerings(claim: Wire) -> int:
    """How many instance types, zones and capacity types it allows; no NodeClaim here asks for accelerators."""
    found = 1
    for one in claim["spec"]["requirements"]:
        if one["key"] in {names.INSTANCE_TYPE_LABEL, names.ZONE_LABEL, names.CAPACITY_TYPE_LABEL}:
            found *= len(one["values"])
    return found


def _stays(claim: Wire | None) -> bool:
    return claim is not None and "deletionTimestamp" not in claim["metadata"]


def _is_shut(node: Wire) -> bool:
    return any(one["key"] == names.UNREGISTERED_TAINT.key for one in node["spec"].get("taints") or ())


def _bound(members: Iterable[Wire]) -> int:
    return sum(bool(one["spec"].get("nodeName")) for one in members)


def _sets(claim: Wire) -> tuple[LaunchSet, ...]:
    return sets_of(claim["metadata"].get("annotations") or {})
