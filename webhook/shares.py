"""How many pods of one owner must run on demand, and which of them a new pod is: counted from watched pods and from what was just admitted.

`dovetail.dev/on-demand: "30%"` (or a number of pods) on the pods of a ReplicaSet, StatefulSet or Job. A pod that is to run on demand gets a requirement,
the others a preference for spot. Every such pod gets a label that says which it is, so that only these pods are watched, and an annotation with the
review that decided, so that an admission is not counted again when its pod appears.

Each replica counts what it admitted itself at once and what others admitted when the watch shows it. So n replicas that decide at the same time are wrong by
n pods at most, and the next pods make up for it.
"""

import re
import sys
import threading
from collections import OrderedDict
from typing import Final, NamedTuple

import msgspec

from provisioner.apis import names
from provisioner.apis.shares import Seat, Share, ShareOwner, Side
from provisioner.kube.resources import Bare
from provisioner.support.clock import Clock

ADMITTED_SECONDS: Final = 10.0
"""How long an admitted pod counts that the watch has not shown: it may have been refused by somebody else, such as a quota."""
MAX_ADMITTED: Final = 20_000
"""Admissions that are remembered at a time; the oldest are forgotten first."""
LONGEST_UID: Final = 64
"""Of an owner or a review, in characters; Kubernetes' have 36. Whoever creates a pod may name any owner, so longer ones are not remembered."""

_decode = msgspec.json.Decoder(Bare).decode
_PLACE = re.compile(r"\.([0-9]{1,7})\.[^.]*$", re.ASCII)


class _Places:
    """The places that the pods of one side have; two pods may have one place for a moment. Amortised O(1)."""

    def __init__(self) -> None:
        self.pods = 0
        self._taken: dict[int, int] = {}
        self._lowest = 1  # nothing below is free

    def free(self) -> int:
        """The lowest free place."""
        while self._lowest in self._taken:
            self._lowest += 1
        return self._lowest

    def take(self, place: int) -> None:
        self.pods += 1
        self._taken[place] = self._taken.get(place, 0) + 1

    def leave(self, place: int) -> None:
        self.pods -= 1
        left = self._taken.get(place, 1) - 1
        if left:
            self._taken[place] = left
        else:
            self._taken.pop(place, None)
            self._lowest = min(self._lowest, max(1, place))


class _Count(NamedTuple):
    owner: ShareOwner
    side: Side
    place: int


class SharedPod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is kept of a watched pod: an eighth of its metadata.

    Attributes:
        resource_version: of the object that this is from.
        count: what it counts as; None for one that ends or has no share.
        review: that decided on it, "" where it does not say or says more than would be remembered.
    """

    name: str
    namespace: str
    uid: str
    resource_version: str
    count: _Count | None
    review: str


def decode_shared(data: bytes) -> SharedPod:
    """The pod in this JSON.

    Raises:
        msgspec.MsgspecError: no JSON, or no metadata.
    """
    pod = _decode(data)
    metadata = pod.metadata
    review = metadata.annotations.get(names.ON_DEMAND_TICKET, "").rpartition(".")[2]
    return SharedPod(
        name=metadata.name,
        namespace=sys.intern(metadata.namespace),
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        count=_counted(pod),
        review=review if len(review) <= LONGEST_UID else "",
    )


class ShareLedger:
    """The pods with a share by owner: those that a watch shows (it tells of each `changed`) and those just admitted. Thread-safe.

    Cost: O(1) a review and an event, amortised.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._owners: dict[ShareOwner, dict[Side, _Places]] = {}
        self._admitted: OrderedDict[str, tuple[float, _Count]] = OrderedDict()

    def __len__(self) -> int:
        """The owners of which something is known."""
        return len(self._owners)

    def seat(self, owner: ShareOwner, share: Share, review: str, *, keep: bool = True) -> Seat:
        """What the next pod of an owner is for.

        Args:
            owner: of the pod.
            share: how many of its pods must run on demand.
            review: uid of the admission review.
            keep: whether the pod will be made; otherwise nothing is remembered.
        """
        with self._lock:
            self._forget()
            sides = self._owners.get(owner) or {side: _Places() for side in Side}
            on_demand = sides[Side.ON_DEMAND].pods
            side = Side.ON_DEMAND if on_demand < share.of(on_demand + sides[Side.SPOT].pods + 1) else Side.SPOT
            place = sides[side].free()
            if keep and max(len(owner.uid), len(review)) <= LONGEST_UID:
                self._drop(review)  # asked twice with one uid: nothing may count that is not remembered
                if len(self._admitted) >= MAX_ADMITTED:
                    self._drop(next(iter(self._admitted)))
                count = _Count(owner, side, place)
                self._admitted[review] = (self._clock.monotonic() + ADMITTED_SECONDS, count)
                self._add(count)
            return Seat(side, place, share.rank(side, place))

    def changed(self, old: SharedPod | None, new: SharedPod | None) -> None:
        """Take in one change of a pod."""
        with self._lock:
            before, after = (None if pod is None else pod.count for pod in (old, new))
            if before != after:
                if after is not None:
                    self._add(after)
                if before is not None:
                    self._remove(before)
            if new is not None and old is None:
                self._drop(new.review)

    def _forget(self) -> None:
        now = self._clock.monotonic()
        while self._admitted:
            review, (until, _) = next(iter(self._admitted.items()))
            if until > now:
                return
            self._drop(review)

    def _drop(self, review: str) -> None:
        found = self._admitted.pop(review, None)
        if found is not None:
            self._remove(found[1])

    def _add(self, count: _Count) -> None:
        sides = self._owners.setdefault(count.owner, {side: _Places() for side in Side})
        sides[count.side].take(count.place)

    def _remove(self, count: _Count) -> None:
        sides = self._owners[count.owner]
        sides[count.side].leave(count.place)
        if not any(places.pods for places in sides.values()):
            del self._owners[count.owner]


def _counted(pod: Bare) -> _Count | None:
    """What a pod counts as; None for one that ends or has no share."""
    metadata = pod.metadata
    label = metadata.labels.get(names.ON_DEMAND_SHARE_LABEL)
    if metadata.deletion_timestamp is not None or label not in tuple(Side):
        return None
    place = _PLACE.search(metadata.annotations.get(names.ON_DEMAND_TICKET, ""))
    for owner in metadata.owner_references:
        if owner.controller and len(owner.uid) <= LONGEST_UID:
            # brothers have one text
            its = ShareOwner(sys.intern(metadata.namespace), sys.intern(owner.uid))
            return _Count(its, Side(label), 0 if place is None else int(place[1]))
    return None
