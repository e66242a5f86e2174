"""The launch templates in EC2: made when they are missing, each on its own, and deleted when nobody uses them.

What is in one and what it is called is `templates`' business. A template that we once made is believed to be there; EC2 says so when it is not.
"""

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from provisioner.apis import ec2
from provisioner.ec2.access.client import Clients, pages
from provisioner.ec2.access.errors import LAUNCH_TEMPLATE_QUOTA, Failure, FailureKind, classify_exception
from provisioner.ec2.launch.templates import (
    EVICT_TO,
    QUOTA,
    WARN_AT,
    LaunchTemplate,
    TemplateUses,
    ours,
    surplus,
)
from provisioner.ec2.nodeclass.discovery import DiscoveryError
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.metrics import gauge
from provisioner.support.workers import pool, run_parallel
from provisioner.values.bounded import put_newest

_AT_ONCE: Final = 8
_PAGE: Final = 200
_MAX_KNOWN: Final = 8192
_TEMPLATES: Final = gauge(
    "dovetail_aws_launch_templates",
    "Launch templates of the account in this Region, including those that others created.",
    (),
)
_log = logs.get_logger(__name__)


class _Making:
    """A template that somebody is making; `error` is read after `done`."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.error: Exception | None = None


class LaunchTemplates:
    """Thread-safe; no lock is held while EC2 is asked.

    Args:
        uses: when each was last used.
        cluster: templates of others are never touched.
    """

    def __init__(self, aws: Clients, uses: TemplateUses, clock: Clock, cluster: str) -> None:
        self.uses = uses
        self._aws, self._clock, self._cluster = aws, clock, cluster
        self._evicting, self._evicted = threading.Lock(), float("-inf")
        self._lock = threading.Lock()
        self._known: dict[str, str] = {}  # name to its class
        self._making: dict[str, _Making] = {}

    def ensure(self, wanted: Iterable[LaunchTemplate]) -> None:
        """See to it that all of these exist; those that are missing are made at the same time, each by one thread only.

        Raises:
            botocore.exceptions.ClientError, BotoCoreError: of the first that could not be made; the others may have been.
        """
        now = self._clock.now()
        missing = []
        for one in wanted:
            self.uses.used(one.name, now)
            with self._lock:
                if one.name not in self._known:
                    missing.append(one)
        if len(missing) == 1:
            self._make(missing[0])
        elif missing:
            with pool(min(_AT_ONCE, len(missing)), "launch-templates") as threads:
                for outcome in run_parallel(threads, self._make, missing):
                    outcome.unwrap()

    def forget(self, names: Iterable[str]) -> None:
        """EC2 says that these do not exist."""
        with self._lock:
            for name in names:
                self._known.pop(name, None)

    def clean(self, classes: Collection[str]) -> int:
        """Delete those that were not used for long, those of classes that are gone, and where the quota is nearly used up the oldest.

        Args:
            classes: names of all EC2NodeClasses that there are.

        Returns:
            How many were deleted.

        Raises:
            botocore.exceptions.ClientError, BotoCoreError: they could not be listed.
        """
        total, found = self._list()
        expired = set(self.uses.expired(found, self._clock.now()))
        doomed = [name for name, tags in found.items() if name in expired or tags.get(ec2.NODECLASS_TAG) not in classes]
        deleted = {name for name in doomed if self._delete(name) is None}
        left = [name for name in found if name not in deleted]
        deleted |= self._evict(left, surplus(total - len(deleted), QUOTA))
        total -= len(deleted)
        _TEMPLATES.set(total)
        if total > WARN_AT * QUOTA:
            _log.warning(
                "The launch template quota of this Region is nearly used up; raise the quota or delete unused launch "
                "templates",
                launch_templates=total,
                quota=QUOTA,
                of_this_cluster=len(found) - len(deleted),
            )
        return len(deleted)

    def drop(self, node_class: str) -> int:
        """Delete all of one class, which is going away; how many there were.

        A list may lack what was made a moment ago: those that were made here are deleted whether they are listed or not.

        Raises:
            DiscoveryError: they could not be listed, or one of them not be deleted.
        """
        try:
            _, found = self._list(
                {"Name": f"tag:{ec2.CLUSTER_NAME_TAG}", "Values": [self._cluster]},
                {"Name": f"tag:{ec2.NODECLASS_TAG}", "Values": [node_class]},
            )
        except Exception as error:
            raise DiscoveryError("ec2:DescribeLaunchTemplates", classify_exception(error)) from error
        with self._lock:
            own = [name for name, owner in self._known.items() if owner == node_class]
        every = dict.fromkeys([*found, *own])
        failures = {name: failure for name in every if (failure := self._delete(name)) is not None}
        if failures:
            with self._lock:  # the next list may lack them, too
                self._known |= dict.fromkeys(failures, node_class)
            raise DiscoveryError("ec2:DeleteLaunchTemplate", next(iter(failures.values())))
        return len(every)

    # ------------------------------------------------------------------ one template

    def _make(self, wanted: LaunchTemplate) -> None:
        with self._lock:
            making = self._making.get(wanted.name)
            mine = making is None
            if making is None:
                making = self._making[wanted.name] = _Making()
        if not mine:
            making.done.wait()
            if making.error is not None:
                raise making.error
            return
        try:
            self._create(wanted)
        except Exception as error:
            making.error = error
            raise
        finally:
            with self._lock:
                del self._making[wanted.name]
                if making.error is None:
                    put_newest(self._known, wanted.name, wanted.tags.get(ec2.NODECLASS_TAG, ""), _MAX_KNOWN)
            making.done.set()

    def _create(self, wanted: LaunchTemplate, *, again: bool = True) -> None:
        try:
            self._aws.client("ec2").create_launch_template(**wanted.request())
        except Exception as error:
            failure = classify_exception(error)
            if failure.kind is FailureKind.EXISTS:  # equal by name is equal
                return
            if failure.reason != LAUNCH_TEMPLATE_QUOTA or not again or not self._make_room():
                raise
            self._create(wanted, again=False)
            return
        _log.info("Created a launch template", name=wanted.name)

    def _make_room(self) -> bool:
        """EC2 takes no more templates: delete our oldest; whether there is room. One thread does it, the others wait for it."""
        asked = self._clock.monotonic()
        with self._evicting:
            if self._evicted >= asked:
                return True
            _, found = self._list()
            if not self._evict(found, max(1, round((1 - EVICT_TO) * QUOTA))):
                return False
            self._evicted = self._clock.monotonic()
            return True

    def _evict(self, names: Iterable[str], count: int) -> set[str]:
        """Delete the `count` of these that were not used for longest; those that are gone then."""
        doomed = self.uses.oldest(names, count, self._clock.now()) if count else ()
        gone = {name for name in doomed if self._delete(name) is None}
        if gone:
            _log.warning("Deleted launch templates because the quota of this Region is used up", count=len(gone))
        return gone

    def _delete(self, name: str) -> Failure | None:
        """Why it is still there; None when it is gone."""
        self.forget([name])  # first: a launch that needs it now makes it again
        try:
            self._aws.client("ec2").delete_launch_template(LaunchTemplateName=name)
        except Exception as error:  # noqa: BLE001 - botocore raises many kinds; classify_exception sorts them
            failure = classify_exception(error)
            if failure.kind is FailureKind.NOT_FOUND:
                return None
            _log.warning("Failed to delete a launch template; retrying", name=name, error=str(failure))
            return failure
        _log.info("Deleted a launch template", name=name)
        return None

    def _list(self, *filters: Mapping[str, Any]) -> tuple[int, dict[str, dict[str, str]]]:
        """How many templates the account has in this region, and tags by name of those that are ours."""
        total, found = 0, {}
        for row in self._rows(*filters):
            total += 1
            name, tags = row["LaunchTemplateName"], {tag["Key"]: tag.get("Value", "") for tag in row.get("Tags", ())}
            if ours(name, tags, self._cluster):
                found[name] = tags
        return total, found

    def _rows(self, *filters: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        ask = self._aws.client("ec2").describe_launch_templates
        filtered = {"Filters": list(filters)} if filters else {}
        for page in pages(ask, **filtered, MaxResults=_PAGE):
            yield from page.get("LaunchTemplates", ())
