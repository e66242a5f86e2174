"""`dovetail provisioner`: the process around the controllers. Flags and environment are in `provisioner.options`."""

import os
import signal
import sys
import threading
import uuid

import click

from provisioner.apis.reports import REPORTS_URL_ANNOTATION, Report
from provisioner.cloudprovider.kwok import catalogue
from provisioner.cloudprovider.kwok.provider import KwokProvider
from provisioner.controllers.clouds import Cloud, KwokCloud, TypesByPool, kwok_catalogue
from provisioner.controllers.metrics import Metrics
from provisioner.controllers.program import Caches, Controllers
from provisioner.controllers.reports import ReportServer, is_empty, server_context
from provisioner.kube.client import Client
from provisioner.kube.config import connect
from provisioner.kube.errors import ApiError
from provisioner.kube.events import Recorder
from provisioner.kube.lease import Fence, LeaderElector
from provisioner.options import HelpRequested, Options, OptionsError
from provisioner.support import health, logs
from provisioner.support.clock import SystemClock

#: Requests under way at once; more threads than that would only wait for each other on two cores.
CONNECTIONS = 24
_log = logs.get_logger(__name__)


class Program:
    """One process: caches and health always, controllers while it leads."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._clock = SystemClock()
        self._stopping = threading.Event()
        self._lost = False
        self._connection = connect(
            options.kubeconfig or None,
            qps=options.kube_client_qps,
            burst=options.kube_client_burst,
            user_agent="dovetail-provisioner",
            pool_size=CONNECTIONS,
        )
        self._client = Client(self._connection, self._clock)
        self._caches = Caches(self._connection, options, self._clock)
        self._recorder = Recorder(self._client, "karpenter", self._clock)
        self._metrics = Metrics()
        self._cloud = self._make_cloud()
        self._caches.use_types(TypesByPool(self._caches.pools.store.get, self._cloud.types))
        self._controllers: Controllers | None = None

    def run(self) -> int:
        """Serve until a signal, or until the lease is lost; the exit status."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stopping.set())
        options = self._options
        probes = health.serve(
            options.health_probe_port, options.bind_address, {"caches": self._caches.problem}, with_metrics=False
        )
        figures = health.serve(options.metrics_port, options.bind_address, profiling=options.enable_profiling)
        reports = self._report_server()
        if reports is not None:
            reports.start()
        try:
            if not self._caches.start(self._stopping):
                return 0
            self._cloud.start()
            self._lead(reports.url if reports is not None else "")
        finally:
            if reports is not None:
                reports.stop()
            self._caches.stop()
            self._cloud.stop()
            self._recorder.stop()
            probes.stop()
            figures.stop()
            self._connection.close()
        return 1 if self._lost else 0

    def _lead(self, reports_url: str) -> None:
        if self._options.disable_leader_election:
            self._begin()
            self._stopping.wait()
            self._end()
            return
        elector = LeaderElector(
            self._client,
            self._options.leader_election_name,
            self._options.lease_namespace,
            f"{os.uname().nodename}_{uuid.uuid4()}",
            self._clock,
            annotations={REPORTS_URL_ANNOTATION: reports_url} if reports_url else {},
        )
        thread = threading.Thread(target=elector.run, args=(self._started, self._lose), name="election", daemon=True)
        thread.start()
        self._stopping.wait()
        self._end()
        elector.stop()
        thread.join(5.0)

    def _started(self, fence: Fence) -> None:
        fence.check()
        self._begin()

    def _begin(self) -> None:
        self._controllers = Controllers(
            self._caches, self._client, self._cloud, self._recorder, self._metrics, self._options, self._clock
        )
        self._controllers.start()

    def _lose(self) -> None:
        """Another may lead from now on: this process writes nothing more, not even to clean up."""
        _log.error("lost the lease, ending at once so that two never act")
        sys.stdout.flush()
        os._exit(1)

    def _end(self) -> None:
        if self._controllers is not None:
            self._controllers.stop()

    def _report_server(self) -> ReportServer | None:
        options = self._options
        if options.report_cert_dir and is_empty(options.report_cert_dir):
            _log.warning(
                "reports are off: no certificates yet, restart when they are there", dir=options.report_cert_dir
            )
            return None
        tls = server_context(options.report_cert_dir) if options.report_cert_dir else None
        # without certificates only this machine may report
        host = options.report_bind_address or ("127.0.0.1" if tls is None else "0.0.0.0")
        return ReportServer(host, options.report_port, self._reported, tls, address=options.report_address)

    def _reported(self, reports: tuple[Report, ...]) -> None:
        if self._controllers is not None:
            self._controllers.reported(reports)

    def _make_cloud(self) -> Cloud:
        if self._options.provider == "aws":
            from provisioner.controllers.aws import AwsCloud  # here: boto3 is big, kwok needs none of it

            return AwsCloud(self._options, self._connection, self._client, self._caches, self._clock)
        return KwokCloud(
            KwokProvider(
                self._client,
                self._caches.nodes.store,
                self._caches.classes.store,
                self._clock,
                kwok_catalogue(self._options),
            )
        )


@click.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True}, add_help_option=False)
@click.pass_context
def command(context: click.Context) -> None:
    """Run the provisioner (Karpenter's flags and environment; --help lists them)."""
    raise SystemExit(main(context.args))


def main(arguments: list[str]) -> int:
    """Run with these arguments; the exit status."""
    try:
        options = Options.parse(arguments, os.environ)
        logs.configure(options.log_level or "info", "text" if options.log_format == "text" else "json")
        return Program(options).run()
    except HelpRequested as text:
        sys.stdout.write(f"{text}\n")
        return 0
    except (OptionsError, ApiError, catalogue.CatalogueError, OSError, ValueError) as error:
        sys.stderr.write(f"dovetail provisioner: {error}\n")
        return 1
