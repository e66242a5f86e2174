"""`dovetail provisioner`: the process around the controllers. Flags and environment are in `provisioner.options`."""

import math
import os
import sys
import threading
import uuid
from typing import cast

import click

from provisioner.apis import names
from provisioner.apis.reports import REPORTS_URL_ANNOTATION, PodReport
from provisioner.cloudprovider.kwok import catalogue
from provisioner.cloudprovider.kwok.provider import KwokProvider
from provisioner.clouds import Cloud
from provisioner.history.digest import HistoryTold
from provisioner.kube.client import Client
from provisioner.kube.config import connect
from provisioner.kube.errors import ApiError, ConfigError
from provisioner.kube.events import Recorder
from provisioner.kube.lease import Fence, LeaderElector, LeaseTerm
from provisioner.kube.server_version import warn_if_not_tested
from provisioner.observability.collector import announce_build
from provisioner.operator.kwok import KwokCloud, kwok_catalogue
from provisioner.operator.leadership import Leadership
from provisioner.operator.other_autoscalers import LOOK_SECONDS, OtherAutoscalers
from provisioner.operator.report_server import ReportServer, is_empty, serving_context
from provisioner.operator.term import Term
from provisioner.options import HelpRequested, Options, OptionsError, WithSettings
from provisioner.runtime import metrics
from provisioner.runtime.caches import Caches
from provisioner.runtime.freshness import stale
from provisioner.runtime.poller import ApiPoller
from provisioner.support import health, heartbeat, logs
from provisioner.support.clock import SystemClock
from provisioner.support.ending import Process, ThisProcess, stop_all, stop_on_signals
from provisioner.support.memory import CHECK_SECONDS, MemoryGuard, few_arenas
from provisioner.ui.viewers import PATH, Viewers
from provisioner.values.errors import ExitStatus, in_words
from provisioner.why.access import Access
from provisioner.why.leader import LeaderInstant
from provisioner.why.server import WhyServer

#: Requests under way at once; more threads than that would only wait for each other on two cores.
CONNECTIONS = 24
SWITCH_SECONDS = 0.001
"""A thread that computes gives the interpreter to one that waits for it after so long: threads that call the API server need it a dozen times a call."""
STOP_SECONDS = 20.0
"""From the signal to the end of this process, whatever hangs: Kubernetes kills after 30."""
OTHERS_STOP_SECONDS = 3.0
CERTIFICATES_SECONDS = 10.0
"""How often the certificates for reports are looked for while there are none."""
_log = logs.get_logger(__name__)


class ProvisionerProcess:
    """One process: caches and health always, controllers while it leads."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._clock = SystemClock()
        self._stopping = threading.Event()
        self._identity = f"{os.uname().nodename}_{uuid.uuid4()}"
        self._connection = connect(
            options.kubeconfig or None,
            qps=options.kube_client_qps,
            burst=options.kube_client_burst,
            user_agent=f"dovetail-provisioner/{self._identity}",  # an audit log shows which replica wrote
            pool_size=CONNECTIONS,
        )
        self._term = LeaseTerm()
        # whatever it is lent to writes as the leader only
        self._client = Client(self._connection, self._clock, self._term)
        self._caches = Caches(self._connection, options, self._clock)
        self._others = OtherAutoscalers(self._client, self._clock, options)
        self._caches.beside = lambda: self._others.problem
        self._others_poller = ApiPoller("other-autoscalers", self._others.poll, LOOK_SECONDS)
        self._recorder = Recorder(self._client, "karpenter", self._clock)
        metrics.leading(options.leader_election_name, lambda: self._term.left() > 0)
        metrics.sync(lambda: not stale(self._caches.awaited), self._clock.monotonic)
        self._cloud = self._make_cloud()
        self._caches.use_types(self._cloud.types)
        self._controllers: Term | None = None
        self._elector: LeaderElector | None = None
        self._ended = False

    def run(self) -> int:
        """Serve until a signal; the exit status. The process ends by itself when the lease is lost."""
        heartbeat.watch_threads()
        process = ThisProcess()
        stop_on_signals(self._stopping, process, STOP_SECONDS)
        options = self._options
        announce_build(os.environ.get("DOVETAIL_COMMIT", ""))
        guard = MemoryGuard(options.memory_limit, self._clock)
        if guard.is_set:
            threading.Thread(target=self._watch_memory, args=(guard,), name="memory", daemon=True).start()
        probes = health.serve(
            options.health_probe_port,
            options.bind_address,
            {"caches": self._caches.problem},
            live_checks={"threads": self._threads},
            notes={"objects": self._caches.bad_objects, "watches": self._caches.optional_problem},
            with_metrics=False,
        )
        figures = health.serve(options.metrics_port, options.bind_address, profiling=options.enable_profiling)
        reports = self._report_server()
        if reports is not None:
            reports.start()
        access = Access(self._client, self._clock)
        viewers = Viewers(self._instant, access, self._clock, self._history)
        why = self._why_server(access, viewers)
        if why is not None:
            why.start()
            viewers.start()
        try:
            if not self._caches.start(self._stopping):
                return 0
            warn_if_not_tested(self._client)
            self._cloud.start()
            self._others_poller.once()  # before anything is launched
            self._others_poller.start()
            self._lead(reports, process)
        finally:
            self._end()
            servers = [one.stop for one in (reports, why, viewers, probes, figures) if one is not None]
            stop_all(
                (self._connection.close, self._caches.stop, self._others_poller.stop, *servers), OTHERS_STOP_SECONDS
            )
        return 0

    def _watch_memory(self, guard: MemoryGuard) -> None:
        pulse = heartbeat.pulse("memory")
        while not self._stopping.wait(CHECK_SECONDS):
            pulse.beat()
            guard.look()

    def _lead(self, reports: ReportServer | None, process: Process) -> None:
        if self._options.disable_leader_election:
            self._term.begin(Fence(self._clock, math.inf))
            self._begin()
            self._stopping.wait()
            self._end()
            return
        elector = self._elector = LeaderElector(
            Client(self._connection, self._clock),  # the Lease itself is written by whoever does not lead yet
            self._options.leader_election_name,
            self._options.lease_namespace,
            self._identity,
            self._clock,
        )
        if self._options.why_port:
            elector.annotate({names.WHY_PORT_ANNOTATION: str(self._options.why_port)})
        leadership = Leadership(elector, self._term, self._client, self._begin, process, self._clock)
        if reports is not None and reports.can_be_reached:
            elector.annotate({REPORTS_URL_ANNOTATION: reports.url})
            reports = None
        leadership.start()
        while reports is not None and not self._stopping.wait(CERTIFICATES_SECONDS):
            if reports.can_be_reached:  # their Secret is optional, and may come later than we
                elector.annotate({REPORTS_URL_ANNOTATION: reports.url})
                reports = None
        self._stopping.wait()
        self._end()
        leadership.stop()

    def _threads(self) -> str:
        return "" if self._stopping.is_set() else heartbeat.problem()

    def _begin(self) -> None:
        if self._stopping.is_set():
            return
        self._controllers = Term(self._caches, self._client, self._cloud, self._recorder, self._options, self._clock)
        self._controllers.start()

    def _end(self) -> None:
        """Finish what is under way and tell what is left to tell, while this process may still write; once."""
        if self._ended:
            return
        self._ended = True
        if self._controllers is not None:
            self._controllers.stop()
        stop_all((self._cloud.stop, self._recorder.stop), OTHERS_STOP_SECONDS)

    def _report_server(self) -> ReportServer | None:
        options = self._options
        context = serving_context(options.report_cert_dir) if options.report_cert_dir else None
        if context is not None and is_empty(options.report_cert_dir):
            _log.warning(
                "Reports of the extender are disabled until the certificates exist", dir=options.report_cert_dir
            )
        elif context is not None:
            context.current()  # says now that a file is unusable
        # without certificates only this machine may report
        host = options.report_bind_address or ("127.0.0.1" if context is None else options.bind_address)
        return ReportServer(
            host,
            options.report_port,
            self._reported,
            context.current if context is not None else None,
            address=options.report_address,
        )

    def _why_server(self, access: Access, viewers: Viewers) -> WhyServer | None:
        if not self._options.why_port:
            return None
        routes = {PATH: viewers.attend}
        return WhyServer(self._options.why_port, self._instant, self._leader, access, self._clock, routes)

    def _instant(self) -> LeaderInstant | None:
        """Now, where this process leads."""
        leads = self._controllers is not None and self._term.left() > 0
        return self._controllers.instant() if leads and self._controllers is not None else None

    def _history(self) -> tuple[HistoryTold, float] | None:
        return self._controllers.history.told() if self._controllers is not None else None

    def _leader(self) -> str:
        return self._elector.holder if self._elector is not None else ""

    def _reported(self, reports: tuple[PodReport, ...]) -> None:
        if self._controllers is not None:
            self._controllers.reported(reports)

    def _make_cloud(self) -> Cloud:
        if self._options.provider == "aws":
            from provisioner.ec2.cloud import AwsCloud  # noqa: PLC0415 - boto3 is big, kwok needs none of it

            return AwsCloud(self._options, self._connection, self._client, self._caches, self._clock)
        return KwokCloud(
            KwokProvider(
                self._client,
                self._caches.nodes.store,
                self._caches.classes.store,
                self._clock,
                kwok_catalogue(self._options),
                overlaid=self._caches.overlays.applied,
            )
        )


@click.command(
    cls=WithSettings,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    add_help_option=False,
    help="Run the provisioner (Karpenter's flags and environment; --help lists them).",
)
@click.pass_context
def command(context: click.Context) -> None:
    """See `dovetail provisioner --help`."""
    status = main(context.args)
    sys.stdout.flush()
    sys.stderr.flush()
    # threads of ours may still wait for an answer; the interpreter's own end would take its time, and may wait for them
    os._exit(status)


def main(arguments: list[str]) -> int:
    """Run with these arguments; the exit status."""
    few_arenas()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        options = Options.parse(arguments, os.environ)
        logs.configure(
            options.log_level,
            cast("logs.Format", options.log_format),
            paths=options.log_output_paths,
        )
        if options.why_port and not options.report_cert_dir and os.environ.get("KUBERNETES_SERVICE_HOST"):
            raise OptionsError(
                "--why-port requires --report-cert-dir; without certificates, anyone who can open port-forwards to "
                "this pod could send reports"
            )
        for sentence in options.without_effect():
            _log.warning(sentence)
        return ProvisionerProcess(options).run()
    except HelpRequested as text:
        sys.stdout.write(f"{text}\n")
        return ExitStatus.DONE
    except (OptionsError, ApiError, ConfigError, catalogue.CatalogueError, OSError, ValueError) as error:
        sys.stderr.write(f"dovetail provisioner: {in_words(error) if isinstance(error, OSError) else error}\n")
        return ExitStatus.UNDETERMINED if isinstance(error, ApiError) else ExitStatus.USAGE
