"""`dovetail record`: a history of a cluster beside any autoscaler, read from watches and written to files. It writes no object."""

import functools
import random
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from provisioner.apis import names
from provisioner.apis.core import Event
from provisioner.cli import flags
from provisioner.cloudprovider.kwok import catalogue
from provisioner.cloudprovider.types import InstanceType, offering_price
from provisioner.ec2.market.prices import static_prices
from provisioner.history.anonymous import Anonymizer
from provisioner.history.keeper import HistoryBounds, HistoryKeeper, HistorySources
from provisioner.history.stores import DirectoryFolder, FolderError, SegmentFolder, StoredSegments
from provisioner.history.tracker import PriceOf, capacity_type_of
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.config import Api, connect
from provisioner.kube.discovery import serves
from provisioner.kube.resources import Resource
from provisioner.kube.watch import Reflector, wait_for_sync
from provisioner.options import OptionsError
from provisioner.runtime.changes import Change, NodeChanged, NodeClaimChanged, NodePoolChanged, PodChanged
from provisioner.support import logs
from provisioner.support.clock import SystemClock
from provisioner.support.ending import ThisProcess, stop_all, stop_on_signals
from provisioner.values.duration import DurationError, parse_duration
from provisioner.values.errors import ExitStatus, UndeterminedError, UserError

T = TypeVar("T")
_SEGMENT_SECONDS: Final = 600.0
"""What is lost where the process is killed."""
_SYNC_SECONDS: Final = 120.0
_EVENTS_SECONDS: Final = 10.0
"""For so long the record waits for events, of which it tells those that follow; without them it begins anyway."""
_STOP_SECONDS: Final = 20.0
_MOST_KEY: Final = 4096
_LEAST_KEY: Final = 16


def price_of_node(labels: Mapping[str, str], annotations: Mapping[str, str]) -> float:
    """USD per hour of a node of any autoscaler: as its annotation says, as kwok's catalogue, or as EC2's shipped on-demand price; 0 where nobody knows.

    Spot prices of EC2 are not shipped, so those nodes have none.
    """
    try:
        if said := float(annotations.get(names.INSTANCE_PRICE_ANNOTATION, "") or 0):
            return said if 0 < said < 1e6 else 0.0
    except ValueError:
        pass  # somebody else's text
    kind, zone = labels.get(names.INSTANCE_TYPE_LABEL, ""), labels.get(names.ZONE_LABEL, "")
    capacity = capacity_type_of(labels) or names.CAPACITY_ON_DEMAND
    own = _kwok_types().get(kind)
    if own is not None:
        return offering_price(own, zone, capacity) or 0.0
    region = labels.get(names.REGION_LABEL, "")
    is_on_demand = capacity == names.CAPACITY_ON_DEMAND
    return static_prices(region).on_demand.get(kind, 0.0) if region and is_on_demand else 0.0


@functools.cache
def _kwok_types() -> Mapping[str, InstanceType]:
    return {one.name: one for one in catalogue.generated().types}


class ClusterRecorder:
    """Watches a cluster, and tells a keeper what it sees.

    Args:
        made: makes the keeper of what is there.

    Attributes:
        events: their watch. Those that are there when it begins are up to an hour old, happened before the record, and are not told.

    Raises:
        ApiError: the API server does not say which kinds it has.
    """

    def __init__(self, connection: Api, made: Callable[[HistorySources], HistoryKeeper], price_of: PriceOf) -> None:
        self._clock, self._connection = SystemClock(), connection
        client = Client(connection, self._clock)
        nodes = self._watch(resources.NODES, NodeChanged)
        pods = self._watch(resources.PODS, PodChanged)
        claims = self._optional(client, resources.NODECLAIMS, NodeClaimChanged)
        pools = self._optional(client, resources.NODEPOOLS, NodePoolChanged)
        self.events = Reflector(
            connection,
            resources.EVENTS,
            changed=self._said,
            clock=self._clock,
            rng=random.Random(),
            field_selector="involvedObject.kind!=Pod",
        )
        self._awaited = [one for one in (nodes, pods, claims, pools) if one is not None]
        self._watches: list[Reflector[Any]] = [*self._awaited, self.events]
        self._keeper = made(
            HistorySources(pods.store.list, nodes.store.list, _listed(claims), _listed(pools), price_of)
        )

    def run(self, stopping: threading.Event) -> None:
        """Record until the signal.

        Raises:
            UndeterminedError: the cluster did not tell what is there.
        """
        for one in self._watches:
            one.start()
        try:
            if waiting := wait_for_sync(self._awaited, _SYNC_SECONDS):
                one = waiting[0]
                raise UndeterminedError(
                    f"{one.resource} could not be read: {one.error or 'no answer'}. Grant this user the verbs list and watch on {one.resource}"
                )
            if wait_for_sync([self.events], _EVENTS_SECONDS):
                why = self.events.error or "no answer"
                click.echo(
                    f"Events could not be read: {why}. The record has none until they can; grant this user the verbs list and watch on {self.events.resource}",
                    err=True,
                )
            self._keeper.poller.start()
            kinds = ", ".join(str(one.resource) for one in self._watches)
            click.echo(f"Recording the cluster: {kinds}", err=True)
            stopping.wait()
            self._keeper.poller.stop()
            self._keeper.close()
        finally:
            stop_all([one.stop for one in self._watches], _STOP_SECONDS / 2)

    def _watch(self, resource: Resource[T], kind: Callable[[T | None, T | None], Change]) -> Reflector[T]:
        def changed(old: T | None, new: T | None) -> None:
            self._keeper.heard(kind(old, new))

        return Reflector(self._connection, resource, changed=changed, clock=self._clock, rng=random.Random())

    def _optional(
        self, client: Client, resource: Resource[T], kind: Callable[[T | None, T | None], Change]
    ) -> Reflector[T] | None:
        return self._watch(resource, kind) if serves(client, resource) else None

    def _said(self, old: Event | None, new: Event | None) -> None:
        if new is not None and self.events.synced.is_set() and (old is None or old.count != new.count):
            about = new.involved_object
            self._keeper.said(about.kind, about.name, new.reason, new.message)


def _listed(watch: Reflector[T] | None) -> Callable[[], Iterable[T]]:
    """What a watch has found; nothing where there is none."""
    return tuple if watch is None else watch.store.list


def _age(_: click.Context, __: click.Parameter, text: str) -> timedelta:
    try:
        found = parse_duration(text)
    except DurationError:
        found = timedelta()
    if found < timedelta(minutes=10):
        raise click.BadParameter(f'must be a duration of 10m or more such as "168h", not {text!r}')
    return found


def _key(path: Path | None) -> bytes:
    """The secret in a file, which is made where it is missing."""
    if path is None:
        return secrets.token_bytes(32)
    try:
        if not path.exists():
            path.touch(mode=0o600)
            path.write_text(secrets.token_hex(32), encoding="ascii")
        key = path.read_bytes()[:_MOST_KEY]
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None
    if len(key) < _LEAST_KEY:
        raise UserError(f"{path} has {len(key)} bytes; a key needs {_LEAST_KEY} or more")
    return key


def _folder(target: str) -> SegmentFolder:
    if not target.startswith("s3://"):
        return DirectoryFolder(Path(target))
    from botocore.session import Session  # noqa: PLC0415 - boto3 is big, a directory needs none of it

    from provisioner.ec2.access.client import AwsClients, CallPolicy  # noqa: PLC0415 - likewise
    from provisioner.ec2.cloud import region_of  # noqa: PLC0415 - likewise
    from provisioner.ec2.segment_bucket import BucketFolder  # noqa: PLC0415 - likewise

    bucket, _, prefix = target.removeprefix("s3://").partition("/")
    if not bucket:
        raise UserError(f"{target} names no bucket; use s3://BUCKET/PREFIX")
    session = Session()
    try:
        region = region_of(session)
    except OptionsError:
        raise UserError("the Region of the bucket is not known; set AWS_REGION") from None
    clients = AwsClients(CallPolicy(region), SystemClock(), session)
    return BucketFolder(clients, bucket, f"{prefix.strip('/')}/" if prefix.strip("/") else "")


@click.command(
    help="""Record what happens in a cluster, whichever autoscaler it has, to files in TARGET: a directory, or s3://BUCKET/PREFIX.

    The command watches nodes, pods, events, and NodeClaims and NodePools where the cluster has them, until it is stopped. It writes nothing to the
    cluster. Pods are counted by class; their manifests are not written. A file is complete once it has its name; the next run continues in the same
    place. A bucket is written with your AWS credentials.

    `dovetail ui --record` shows what was recorded, and `dovetail simulate` runs it again with other settings.

    The exit status is 0 if the command was stopped, 2 if TARGET cannot be used, and 3 if the cluster cannot be read.
    """
)
@click.argument("target")
@click.option(
    "--max-age",
    default="168h",
    show_default=True,
    metavar="DURATION",
    callback=_age,
    help="Age above which files are deleted.",
)
@click.option(
    "--max-mebibytes",
    default=1024,
    show_default=True,
    type=click.IntRange(16, 1 << 20),
    help="Size of all files together above which the oldest are deleted.",
)
@click.option(
    "--anonymous",
    is_flag=True,
    help="Replace names with keyed hashes: of nodes, NodePools, namespaces and labels, and the words of messages.",
)
@click.option(
    "--key-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File with the key for --anonymous, created if it does not exist. Without it, each run uses a new key, and the same name gets another hash.",
)
@flags.cluster
def command(
    target: str,
    max_age: timedelta,
    max_mebibytes: int,
    anonymous: bool,
    key_file: Path | None,
    kubeconfig: str,
    context: str,
) -> ExitStatus:
    """See `dovetail record --help`."""
    if key_file is not None and not anonymous:
        raise click.UsageError("--key-file is only used with --anonymous")
    logs.configure("info", "text")
    bounds = HistoryBounds(max_age.total_seconds(), max_mebibytes << 20, _SEGMENT_SECONDS)
    changed = Anonymizer(_key(key_file)) if anonymous else None
    try:
        store = StoredSegments(_folder(target), bounds)
    except FolderError as error:
        raise UserError(str(error)) from None
    stopping = threading.Event()
    with closing(connect(kubeconfig or None, user_agent="dovetail-record", context=context)) as connection:
        stop_on_signals(stopping, ThisProcess(), _STOP_SECONDS)
        ClusterRecorder(
            connection,
            lambda sources: HistoryKeeper(sources, store, bounds, SystemClock(), source="record", changed=changed),
            price_of_node,
        ).run(stopping)
    return ExitStatus.DONE
