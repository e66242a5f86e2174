"""A control plane, our programs and many rows on it at once."""

import contextlib
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from provisioner.kube.client import Client
from provisioner.kube.config import connect
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.harness import applying, figures
from provisioner.lab.harness.aws import REGION
from provisioner.lab.harness.session import (
    AWS,
    EXTENDER,
    PROVISIONER,
    SYSTEM_NAMESPACE,
    WEBHOOK,
    Session,
    Setup,
)
from provisioner.lab.progress import progress_for
from provisioner.support.clock import SystemClock
from tests.scenarios.row import GROUPS, Row
from tests.scenarios.scene import Runtime, Scene
from tests.scenarios.watching import Log, Watching
from tests.support.ec2 import Ec2
from tests.support.pace import slowness
from tests.support.registry import Authorities, RealRegistry, registry

SIDE_BY_SIDE = 16
"""Rows at a time: they wait most of their time, and their pods cost kube-scheduler and kwok little."""

ENDING_SEED = 1
"""Pods take their time to end, each row's the same in every run where their names are."""


@dataclass(frozen=True)
class RowResult:
    """How a row went.

    Attributes:
        row: its name.
        seconds: how long it took, without the clearing up.
        wrong: what was not as it should be, with what was there then; "" where all was.
    """

    row: str
    seconds: float
    wrong: str = ""


Say = Callable[[RowResult], object]
"""Told of each row when it is over, in any order and from several threads."""


class RowPlayer:
    """Runs rows, each in a scene of its own."""

    def __init__(self, client: Client, watching: Watching, log: Log, runtime: Runtime, say: Say) -> None:
        self._client, self._watching, self._log, self._runtime, self._say = client, watching, log, runtime, say

    def run(self, rows: Iterable[Row]) -> list[RowResult]:
        """All of them, side by side."""
        with ThreadPoolExecutor(SIDE_BY_SIDE, thread_name_prefix="row") as threads:
            return list(threads.map(self._play, rows))

    def _play(self, row: Row) -> RowResult:
        began = time.monotonic()
        wrong = ""
        scene = None
        try:
            scene = Scene(self._client, self._watching, self._log, self._runtime, row.namespace)
            for step in row.steps:
                step(scene)
            scene.verify()
        except Exception as error:  # noqa: BLE001 - a row that fails stops no other
            said = str(error) if isinstance(error, AssertionError) else traceback.format_exc()
            wrong = f"{said}\n{scene.story() if scene is not None else ''}"
        seconds = time.monotonic() - began
        if scene is not None:
            try:
                scene.clear()
            except Exception as error:  # noqa: BLE001 - a row that fails stops no other
                wrong = wrong or f"it cannot be cleared: {error}\n{scene.story()}"
        outcome = RowResult(row.name, seconds, wrong)
        self._say(outcome)
        return outcome


@contextlib.contextmanager
def played(
    rows: Iterable[Row], *, extender: bool, logs: Path | None = None, say: Say = lambda _: None
) -> Iterator[Mapping[str, RowResult]]:
    """Every row on a control plane of their own, group by group; how each went, by name."""
    groups: defaultdict[str, list[Row]] = defaultdict(list)
    for one in rows:
        groups[one.group].append(one)
    cluster = DevCluster(
        temporary=True, extender=extender, audit=True, ending_seed=ENDING_SEED, progress=progress_for(sys.__stderr__)
    )
    cluster.up()
    found: dict[str, RowResult] = {}
    images: RealRegistry | None = None
    resources = contextlib.ExitStack()
    try:
        programs = (EXTENDER, PROVISIONER) if extender else (PROVISIONER,)
        session = Session(Setup("scenarios", programs, logs=logs), cluster, print)
        clock = SystemClock()
        connection = connect(str(cluster.kubeconfig), user_agent="dovetail-scenario", pool_size=SIDE_BY_SIDE + 4)
        client = Client(connection, clock)
        applying.apply_crds(client)
        applying.apply(client, [SYSTEM_NAMESPACE])
        watching, log = Watching(connection, clock), Log(cluster.audit_log)
        runtime = Runtime(lambda: figures.read(session.metrics_url), lambda: slowness(session), cluster)
        watching.start()
        try:
            session.observer.start()
            for name in [one for one in GROUPS if one in groups]:
                group = GROUPS[name]
                if group.webhook and images is None:
                    images = resources.enter_context(_registry())
                group.prepare(session)
                session.setup = replace(
                    session.setup,
                    programs=(*programs, WEBHOOK) if group.webhook else programs,
                    provisioner_flags=("--disable-leader-election=true", *group.flags),
                    webhook_flags=() if images is None else _webhook_flags(images),
                    cloud=group.cloud,
                )
                session.start_programs(lambda _: None)
                stage = RowPlayer(client, watching, log, replace(runtime, registry=images, ec2=_ec2_of(session)), say)
                found |= {one.row: one for one in stage.run(groups[name])}
                session.programs.stop(PROVISIONER)
        finally:
            if logs is not None:
                session.programs.keep_logs(logs)
            watching.stop()
            session.observer.stop()
            session.stop_programs()
            connection.close()
        yield found
    finally:
        resources.close()
        cluster.down()


def _ec2_of(session: Session) -> Ec2 | None:
    """The emulator that a session has started, to ask what it knows."""
    started = session._ec2
    return None if session.setup.cloud != AWS or started is None else Ec2(started._process, started.endpoint, REGION)


@contextlib.contextmanager
def _registry() -> Iterator[RealRegistry]:
    with tempfile.TemporaryDirectory() as directory, registry(Authorities(Path(directory)), "images") as made:
        yield made


def _webhook_flags(images: RealRegistry) -> tuple[str, ...]:
    """Everything is on, and of all private networks only ours may be asked."""
    asked = ("--image-registries", images.at, "--image-registry-networks", "127.0.0.0/8")
    return ("--on-demand-shares", "--conversion", *asked, "--image-registry-ca", str(images.ca))
