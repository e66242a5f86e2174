"""The provisioner's settings: flags and environment variables, with Karpenter's names wherever it has the setting.

A flag wins over its variable, which wins over the default. The variable is the flag in upper snake case; settings that
Karpenter does not have carry DOVETAIL_ in front, so that a stranger's PROVIDER means nothing to us. What is wrong is said in
one sentence that names the flag or the variable, before anything is started.

A setting that goes is accepted for one release more: `_FOLDED`, `_REMOVED`.
"""
# ruff: noqa: RUF009  (the calls describe fields, as dataclasses.field does)

import base64
import contextlib
import functools
import ipaddress
import math
import re
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import Annotated, Any, Final, Literal, Self

import click
import msgspec
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from provisioner.apis import names
from provisioner.apis.karpenter import QUALIFIED_NAME
from provisioner.apis.provisioning_request import CLASSES
from provisioner.support import logs
from provisioner.values import yamltext
from provisioner.values.duration import DurationError, parse_duration
from provisioner.values.message import Said
from provisioner.values.spelling import closest


class OptionsError(ValueError):
    """A flag or a variable that cannot be used; the message is one sentence for the user."""


class HelpRequested(Exception):  # noqa: N818  (no error)
    """The user asked for --help; the message is the text to print."""


# --- how text becomes a value: readers raise ValueError with the rest of a sentence ("must be ...")


class Parsed(click.ParamType[Any]):
    """A type of settings, by its name in help and its reader."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name, self._read = name, read

    def convert(self, value: str, param: Any, ctx: Any) -> Any:
        """What the text of a flag or variable says."""
        where = _where(ctx, param.name)
        if where.startswith("flag") and re.match("--[a-z]", value):
            raise OptionsError(f"{where} requires a value")
        try:
            return self._read(value)
        except ValueError as error:
            raise OptionsError(f"{where} {error}, not {value!r}") from None

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002 - click's signature
        """The words that it may be, where it is a choice."""
        words = self.name.split("|") if "|" in self.name else []
        return [CompletionItem(one) for one in words if one.startswith(incomplete)]


_BOOLEANS: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
"""Go's."""


def _boolean(text: str) -> bool:
    if text not in _BOOLEANS:
        raise ValueError("must be true or false")
    return _BOOLEANS[text]


def whole(name: str, low: int, high: float = math.inf) -> Parsed:
    """Whole numbers."""

    def read(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]+", text):
            raise ValueError("must be a whole number")
        if not low <= int(text) <= high:
            raise ValueError(f"must be {low} or more" if high == math.inf else f"must be from {low} to {high}")
        return int(text)

    return Parsed(name, read)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError("must be a number")
    return value


_EXAMPLES: Final = Said('"10s", "1m30s" or "300ms"')


def _duration(text: str) -> timedelta:
    """Go's grammar: "10s", "1m30s", "300ms"; not negative."""
    try:
        value = parse_duration(text)
    except DurationError:
        value = timedelta(-1)
    if value < timedelta():
        raise ValueError(f"must be a duration such as {_EXAMPLES}")
    return value


def such_that(holds: Callable[[Any], object], otherwise: str, read: Callable[[str], Any] = str) -> Callable[[str], Any]:
    """A reader of what another one reads and `holds` is true of; a ValueError there means that it is not."""

    def reader(text: str) -> Any:
        value = read(text)
        try:
            good = holds(value)
        except ValueError:
            good = False
        if not good:
            raise ValueError(otherwise)
        return value

    return reader


def choice(*choices: str) -> Parsed:
    """One of several words; "" may be one of them."""
    named = ", ".join(one or "an empty value" for one in choices)
    return Parsed("|".join(filter(None, choices)), such_that(choices.__contains__, Said(f"must be one of {named}")))


def _is_url(text: str) -> bool:
    parts = urllib.parse.urlsplit(text)
    return not text or (parts.scheme in ("http", "https") and bool(parts.netloc))


def _is_host_port(text: str) -> bool:
    host, colon, port = text.rpartition(":")
    return not text or bool(host and colon and port.isdigit() and 0 < int(port) < 65536)


def _paths(text: str) -> tuple[str, ...]:
    return tuple(path.strip() for path in text.split(",") if path.strip())


class SpreadDefault(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One default topology spread constraint of kube-scheduler, for pods that have none of their own.

    Attributes:
        label_selector: none, since kube-scheduler deduces it for each pod.
        match_label_keys: likewise.
    """

    max_skew: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    topology_key: Annotated[str, msgspec.Meta(min_length=1)]
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    min_domains: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None
    node_affinity_policy: Literal["Honor", "Ignore"] | None = None
    node_taints_policy: Literal["Honor", "Ignore"] | None = None
    label_selector: None = None
    match_label_keys: Annotated[tuple[str, ...], msgspec.Meta(max_length=0)] | None = None


class _Spread(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    default_constraints: tuple[SpreadDefault, ...] = ()


class _SchedulerConfig(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The one part of a scheduler configuration that Karpenter reads."""

    pod_topology_spread: _Spread = _Spread()


def _scheduler_config(text: str) -> tuple[SpreadDefault, ...]:
    try:
        document = yamltext.only(text.encode())
        found = msgspec.convert({} if document is None else document, _SchedulerConfig)
    except (yamltext.YamlDocumentError, msgspec.ValidationError) as error:
        raise ValueError(
            "must be a scheduler configuration in YAML or JSON, with podTopologySpread.defaultConstraints alone "
            f"({error})"
        ) from None
    constraints = found.pod_topology_spread.default_constraints
    for one in constraints:
        if not re.fullmatch(QUALIFIED_NAME, one.topology_key):
            raise ValueError(f"must name a label in each topologyKey ({one.topology_key!r} is not a label name)")
    pairs = [(one.topology_key, one.when_unsatisfiable) for one in constraints]
    for key, action in pairs:
        if pairs.count((key, action)) > 1:
            raise ValueError(f"must have one default constraint for topologyKey {key} and whenUnsatisfiable {action}")
    return constraints


def _provisioning_classes(text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(filter(None, (part.strip() for part in text.split(",")))))
    if unknown := [one for one in found if one not in CLASSES]:
        raise ValueError(f"must be a list of {', '.join(CLASSES[:-1])} and {CLASSES[-1]} ({unknown[0]!r} is unknown)")
    return found


def _pairs(text: str, example: str) -> dict[str, str]:
    """Values by name, of a list that is written as the example."""
    found: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise ValueError(f'must be a list such as "{example}" with a value for {part!r}')
        found[name] = value
    return found


_NO_DRA: Final = Said("because nodes for pods with DRA resource claims are not planned in this version")


def _gate(name: str, *, default: bool = False, idle: str = "") -> Any:
    """A gate; `idle` is why it switches nothing, where it does not."""
    return field(default=default, metadata={"gate": name, "idle": idle})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gates:
    """Optional features.

    Attributes:
        unknown: gates of other versions, kept to be named in the log; they switch nothing.
    """

    unknown: tuple[str, ...] = ()

    @classmethod
    def known(cls) -> dict[str, str]:
        """The attribute of each gate."""
        return {one.metadata["gate"]: one.name for one in fields(cls) if "gate" in one.metadata}

    @classmethod
    def parse(cls, text: str) -> Self:
        """What a list says of each gate.

        Raises:
            ValueError: a part of it is no gate with a boolean.
        """
        known, given = cls.known(), _pairs(text, "NodeRepair=true,NodeOverlay=false")
        for name, value in given.items():
            if value not in _BOOLEANS:
                raise ValueError(f"must set feature gate {name} to true or false")
        values = {attribute: _BOOLEANS[given[name]] for name, attribute in known.items() if name in given}
        return cls(**values, unknown=tuple(sorted(given.keys() - known.keys())))

    def without_effect(self) -> Iterator[tuple[str, str]]:
        """Of the gates that are on, those that switch nothing, each with the reason."""
        for one in fields(self):
            if one.metadata.get("idle") and getattr(self, one.name):
                yield one.metadata["gate"], one.metadata["idle"]

    def __str__(self) -> str:
        return ",".join(
            f"{name}={'true' if getattr(self, attribute) else 'false'}" for name, attribute in self.known().items()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureGates(_Gates):
    """Karpenter's optional features."""

    node_repair: bool = _gate("NodeRepair")
    reserved_capacity: bool = _gate("ReservedCapacity", default=True)
    spot_to_spot_consolidation: bool = _gate("SpotToSpotConsolidation")
    node_overlay: bool = _gate("NodeOverlay")
    static_capacity: bool = _gate("StaticCapacity")
    capacity_buffer: bool = _gate("CapacityBuffer")
    terminate_first_drift: bool = _gate("TerminateFirstDrift")
    terminate_first_repair: bool = _gate("TerminateFirstRepair")
    pod_deletion_cost_management: bool = _gate("PodDeletionCostManagement")


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsFeatureGates(_Gates):
    """Karpenter's optional features of AWS; `nodeclass_cel` is expressions inside a class's kubelet."""

    nodeclass_cel: bool = _gate("NodeClassCEL")
    dra_nvidia_gpu: bool = _gate("DRANVIDIAGPU", idle=_NO_DRA)
    dra_efa: bool = _gate("DRAEFA", idle=_NO_DRA)
    reboot_for_repair: bool = _gate("RebootForRepair")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimits:
    """How long the provisioner waits at most; --timeouts says of what.

    Attributes:
        named: what --timeouts named.
    """

    solve: timedelta = timedelta(seconds=10)
    hold: timedelta = timedelta(minutes=2)
    plan: timedelta = timedelta(minutes=15)
    launch: timedelta = timedelta(minutes=5)
    registration: timedelta = timedelta(minutes=15)
    command: timedelta = timedelta(minutes=10)
    named: frozenset[str] = field(default=frozenset(), compare=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """What a list says; the others keep their defaults.

        Raises:
            ValueError: a part of it is no timeout with a duration.
        """
        known, values = [*_FOLDED.values()], dict[str, timedelta]()
        for name, value in _pairs(text, "launch=5m,registration=15m").items():
            if name not in known:
                raise ValueError(f"must only set {', '.join(known[:-1])} and {known[-1]} ({name!r} is unknown)")
            with contextlib.suppress(ValueError):
                values[name] = _duration(value)
            if not values.get(name):
                raise ValueError(f"must set {name} to a duration longer than 0 such as {_EXAMPLES}")
        return cls(**values, named=frozenset(values))

    def __str__(self) -> str:
        return ",".join(f"{name}={_shown(getattr(self, name))}" for name in _FOLDED.values())


TEXT: Final = Parsed("TEXT", str)
BOOLEAN: Final = Parsed("true|false", _boolean)
PORT: Final = whole("PORT", 0, 65535)
NUMBER: Final = Parsed("NUMBER", _number)
USD: Final = Parsed("USD", such_that(lambda usd: usd >= 0, Said("must be 0 or more"), _number))
SHARE: Final = Parsed(
    "SHARE",
    such_that(
        lambda share: 0 <= share < 1, Said("must be at least 0 and less than 1, such as 0.075 for 7.5 %"), _number
    ),
)
DURATION: Final = Parsed("DURATION", _duration)
POSITIVE_DURATION: Final = Parsed("DURATION", such_that(bool, Said("must be longer than 0"), _duration))
MINUTE: Final = Parsed(
    "DURATION", such_that(lambda interval: interval >= timedelta(minutes=1), Said("must be 1m or longer"), _duration)
)
URL: Final = Parsed("URL", such_that(_is_url, Said("must be a complete URL such as https://host:443")))
BUNDLE: Final = Parsed(
    "BASE64",
    such_that(lambda text: [base64.b64decode(text, validate=True)], Said("must be a CA bundle in base64")),
)
ADDRESS: Final = Parsed(
    "ADDRESS",
    such_that(
        lambda text: not text or ipaddress.ip_address(text),
        Said("must be an IP address of this host, or empty for all addresses"),
    ),
)
HOST_PORT: Final = Parsed("HOST:PORT", such_that(_is_host_port, Said('must be host:port, such as "10.0.0.7:8444"')))
PATHS: Final = Parsed("LIST", such_that(bool, Said("must name at least one of stdout, stderr or a file"), _paths))
SCHEDULER_CONFIG: Final = Parsed("YAML", _scheduler_config)


def row(default: Any, type_: Parsed, doc: str, *, prefix: str = "") -> Any:
    """One setting that Karpenter has, or that no other program means by its name."""
    return field(default=default, metadata={"type": type_, "doc": doc, "prefix": prefix})


_OWN: Final = "DOVETAIL_"
own = functools.partial(row, prefix=_OWN)


# fmt: off
@dataclass(frozen=True, kw_only=True)
class Options:
    """Every setting of the provisioner; immutable. Field names are the flags with underscores.

    `parse` reads flags and variables; a test builds one with keywords.

    Attributes:
        report_bind_address: of reports alone, as long as it is accepted.
        farewells: what is to be said of settings that go, a sentence each.
    """

    report_bind_address: str = ""
    farewells: tuple[str, ...] = ()

    # Karpenter's
    metrics_port: int = row(8080, PORT, "Port that serves /metrics.")
    health_probe_port: int = row(8081, PORT, "Port that serves /healthz and /readyz.")
    kube_client_qps: float = row(200.0, NUMBER, "Sustained rate of requests to the API server, per second; 0 means no limit.")
    kube_client_burst: int = row(300, whole("NUMBER", 1), "Requests to the API server that may exceed the sustained rate in a burst.")
    enable_profiling: bool = row(False, BOOLEAN, "Serve /debug/stacks on the metrics port.")
    disable_leader_election: bool = row(False, BOOLEAN, "Disable leader election; only safe with one replica.")
    disable_cluster_state_observability: bool = row(False, BOOLEAN, "Disable metrics of individual pods, nodes and NodePools.")
    leader_election_name: str = row("karpenter-leader-election", TEXT, "Name of the leader election Lease.")
    leader_election_namespace: str = row("", TEXT, "Namespace of the leader election Lease; if empty, the system namespace.")
    memory_limit: int = row(-1, whole("BYTES", -1), "Memory limit of this container in bytes; unused memory is released above 90 % of it. -1 means no limit.")
    cpu_requests: int = row(1000, whole("MILLICORES", -(10**9)), "CPU request of this container in millicores; determines the number of workers.")
    log_level: str = row("info", choice(*logs.LEVELS, ""), "Minimum level of messages that are logged.")
    log_output_paths: tuple[str, ...] = row(("stdout",), PATHS, "Destinations of logs: stdout, stderr or file paths.")
    batch_max_duration: timedelta = row(timedelta(seconds=10), POSITIVE_DURATION, "Maximum time that pods are collected into a batch before they are planned.")
    batch_idle_duration: timedelta = row(timedelta(seconds=1), POSITIVE_DURATION, "Time without a new pending pod after which a batch ends. "
        "With the default, a batch ends after 0.1 s if it has all pods that their ReplicaSets, Jobs and StatefulSets want, "
        "and no other pods came within a second of the last eight such batches.")
    preference_policy: str = row("Respect", choice("Respect", "Ignore"), "Whether preferred affinities are respected.")
    min_values_policy: str = row("Strict", choice("Strict", "BestEffort"), "Whether minValues may be relaxed.")
    ignore_dra_requests: bool = row(True, BOOLEAN, "Do not schedule pods with DRA resource claims; if false, they are scheduled as if they had none.")
    scheduler_config: tuple[SpreadDefault, ...] = row((), SCHEDULER_CONFIG,
        "Scheduler configuration in YAML; only podTopologySpread.defaultConstraints is read.")
    legacy_node_repair: bool = row(False, BOOLEAN,
        "Replace unhealthy nodes as Karpenter 1.14 does: at once, whatever budgets allow, and without waiting for a new node (feature gate NodeRepair).")
    feature_gates: FeatureGates = row(FeatureGates(), Parsed("LIST", FeatureGates.parse), "Feature gates as Name=true,Name=false.")

    # Karpenter's, for AWS
    cluster_name: str = row("", TEXT, "Name of the cluster; required with --provider=aws.")
    cluster_endpoint: str = row("", URL, "URL of the API server for new nodes; if empty, discovered from EKS.")
    cluster_ca_bundle: str = row("", BUNDLE, "CA bundle of the API server for new nodes, in base64; if empty, the CA of the provisioner's own connection.")
    isolated_vpc: bool = row(False, BOOLEAN, "Call no AWS services that have no VPC endpoint: no Pricing API, no cleanup of instance profiles.")
    eks_control_plane: bool = row(False, BOOLEAN, "Read the version of the cluster from EKS instead of the API server.")
    vm_memory_overhead_percent: float = row(0.075, SHARE, "Estimated share of an instance's memory that is not available to the node.")
    interruption_queue: str = row("", TEXT, "Name of the SQS queue with interruption messages; if empty, interruptions are not handled.")
    reserved_enis: int = row(0, whole("NUMBER", 0), "Number of network interfaces per node that are not used for pods.")
    disable_dry_run: bool = row(False, BOOLEAN, "Validate EC2NodeClasses without dry-run calls to EC2.")
    enable_zonal_shift: bool = row(False, BOOLEAN, "Launch no instances in zones that an ARC zonal shift moves traffic away from.")
    translate_provisioners: bool = own(False, BOOLEAN, "Translate Provisioners and AWSNodeTemplates of Karpenter before v1beta1 (component conversion).")
    ami_refresh_interval: timedelta = row(timedelta(minutes=1), MINUTE, "Interval between refreshes of AMIs.")
    subnet_refresh_interval: timedelta = row(timedelta(minutes=1), MINUTE, "Interval between refreshes of subnets.")
    security_group_refresh_interval: timedelta = row(timedelta(minutes=1), MINUTE, "Interval between refreshes of security groups.")
    aws_feature_gates: AwsFeatureGates = row(AwsFeatureGates(), Parsed("LIST", AwsFeatureGates.parse), "AWS feature gates as Name=true,Name=false.")

    # ours
    kubeconfig: str = row("", TEXT, "Path of a kubeconfig file; if empty, the service account of the pod or else the user's default kubeconfig.")
    bind_address: str = own("", ADDRESS, "Address that metrics, probes and, with certificates, reports are served on; if empty, all addresses.")
    system_namespace: str = row(names.OWN_NAMESPACE, TEXT, "Namespace of the Leases, ConfigMaps and Secrets of Dovetail.")
    karpenter_namespace: str = own("", TEXT,
        "Namespace of a Karpenter next to Dovetail, in addition to karpenter and kube-system. While Karpenter holds its Lease there, Dovetail launches "
        "nothing and starts no disruption.")
    provider: str = own("kwok", choice("aws", "kwok"), "Cloud provider that launches the nodes.")
    instance_types_file_path: str = row("", TEXT, "JSON file with instance types for kwok; if empty, the built-in instance types.")
    provisioning_classes: tuple[str, ...] = own((), Parsed("LIST", _provisioning_classes),
        "Provisioning classes of ProvisioningRequests that Dovetail serves: check-capacity.autoscaling.x-k8s.io, "
        "best-effort-atomic-scale-up.autoscaling.x-k8s.io or atomic.dovetail.dev, separated by commas; if empty, none.")
    nominate: str = own("auto", choice("true", "false", "auto"),
        "Nominate planned pods to their new node before its taint is removed; auto nominates only while no extender sends reports, and only pods that "
        "kube-scheduler would not place on its own.")
    report_port: int = own(8444, PORT, "Port that accepts reports of the extender; 0 chooses a free port.")
    report_address: str = own("", HOST_PORT, "Address at which extenders reach that port, published on the Lease; if empty, the address of this host.")
    report_cert_dir: str = own("", TEXT, "Directory with tls.crt, tls.key and ca.crt for reports over mTLS; if empty, reports are accepted on loopback only.")
    why_port: int = own(0, PORT, "Port on 127.0.0.1 at which the leader answers `dovetail why` and `dovetail ui` through a port-forward; 0 disables it.")
    packing: str = own("cost", choice("cost", "greedy"),
        "How nodes are chosen for pending pods: with cost, a planner looks for the cheapest nodes while the batch has time; with greedy, pods are packed by"
        " decreasing size, as Karpenter does. The annotation dovetail.dev/packing of a NodePool overrides it.")
    timeouts: TimeLimits = own(TimeLimits(), Parsed("LIST", TimeLimits.parse),
        "Maximum times as name=duration,name=duration: solve, for planning one batch (the best plan so far is used, the remaining pods are planned in the "
        "next batch); hold, that room on a ready node is held for its planned pods; plan, that room is kept on a node that does not become initialized; "
        "launch and registration, after which a NodeClaim that is not launched, or whose Node has not registered, is deleted; command, without progress, "
        "after which a disruption command is canceled and its nodes accept pods again.")
    drain_timeout: timedelta = own(timedelta(0), DURATION,
        "terminationGracePeriod of NodeClaims that do not set one: time from their deletion after which their pods are deleted. 0 waits without limit.")
    mass_deletion_guard: float = own(0.0, SHARE,
        "If NodeClaims with more than this share of the nodes are deleted by a cascade (of a NodePool, or of the CustomResourceDefinition) within a "
        "minute, they wait for the annotation dovetail.dev/confirm-deletion; 0 means off.")
    repair_timeout: timedelta = own(timedelta(0), DURATION,
        "Time that a Node condition which means a broken node must last before the node is replaced (feature gate NodeRepair); 0 uses the times of the "
        "cloud provider, 10 to 30 minutes.")
    repair_breaker: float = own(0.2, SHARE,
        "Share of unhealthy nodes, rounded up to whole nodes, above which the nodes of a NodePool are not repaired (feature gate NodeRepair). The same holds "
        "for a zone, image or instance type if at least three of five or more nodes are unhealthy, and three times the share of the other nodes.")
    aws_region: str = row("", TEXT, "Region of the cluster; if empty, the Region of the instance that the provisioner runs on.")
    consolidation: str = own("saving", choice("saving", "karpenter"),
        "When nodes are consolidated: with saving, when four hours of savings outweigh the cost of moving the pods; with karpenter, when there are any"
        " savings.")
    vpa_predictions: bool = own(False, BOOLEAN,
        "Find room for pods that move by what their VerticalPodAutoscaler recommends, where that is more than they request (component vpa-predictions).")
    max_disrupting_nodes: int = own(0, whole("NUMBER", 0),
        "Maximum number of nodes, across all NodePools, that are disrupted at the same time, including nodes that are not Ready; 0 means no limit.")
    max_claims_per_minute: int = own(0, whole("NUMBER", 0),
        "Maximum number of NodeClaims, of all NodePools and including replacements, that are created within a minute; 0 means no limit.")
    max_usd_per_hour: float = own(0.0, USD,
        "Maximum price of all nodes together, in USD per hour; no NodeClaim that would exceed it is created. 0 means no limit.")
    history_duration: timedelta = own(timedelta(hours=24), DURATION,
        "Time that the leader's history covers at most; it is kept in memory, and begins when the leader begins to lead. With 0, the leader keeps no "
        "history and does not compute what the fleet would cost at the least.")
    history_bytes: int = own(64 << 20, whole("BYTES", 1 << 20), "Maximum memory of the history in bytes; the oldest part is dropped first.")
    discounts: str = own("", TEXT, "YAML file with discounts, or configmap/NAME in the system namespace; if empty, list prices apply.")
    rebalance: str = own("ignore", choice("ignore", "replace", "drain"), "Reaction to a rebalance recommendation for a Spot Instance.")
    check_state: bool = own(False, BOOLEAN, "Rebuild the cluster state after every event and log differences; slow, for debugging.")
    log_format: str = own("json", choice(*logs.FORMATS), "Format of log lines.")
    # fmt: on

    @classmethod
    def parse(cls, argv: Sequence[str], env: Mapping[str, str]) -> "Options":
        """Read the settings.

        Args:
            argv: the flags, without the program's name: --flag=value, --flag value, or --flag and --no-flag for switches.
            env: environment variables; empty ones count as absent.

        Raises:
            OptionsError: something cannot be used.
            HelpRequested: --help or -h was among the flags.
        """
        context = _context(argv, env)
        given = {name: value for name, value in context.params.items() if value is not None}
        values = {name: given.pop(name) for name in _settings() if name in given}
        limits = values.pop("timeouts", TimeLimits())
        folded = {part: given[name] for name, part in _FOLDED.items() if name in given and part not in limits.named}
        limits = replace(limits, **folded)
        given |= {name: getattr(limits, part) for name, part in _FOLDED.items() if name in given}  # what counts is named
        options = cls(
            **values,
            timeouts=limits,
            report_bind_address=given.get("report_bind_address", ""),
            farewells=tuple(filter(None, (_farewell(name, value, _where(context, name)) for name, value in given.items()))),
        )
        options._check()
        return options

    def without_effect(self) -> tuple[str, ...]:
        """What was asked for and changes nothing, or soon will not, a sentence each: to be logged at the start."""
        said = [*self.farewells]
        for flag, gates in (("--feature-gates", self.feature_gates), ("--aws-feature-gates", self.aws_feature_gates)):
            said += [f"{flag}: {name}=true is accepted but has no effect {why}" for name, why in gates.without_effect()]
            said += [
                f"{flag}: {name} is not a feature gate of this version and has no effect" for name in gates.unknown
            ]
        return tuple(said)

    @property
    def lease_namespace(self) -> str:
        """Where the Lease of the leader is."""
        return self.leader_election_namespace or self.system_namespace

    def workers(self, low: int, high: int) -> int:
        """How many threads a controller has: `low` with one core, growing with the CPU request to `high` at 60 cores.

        Source: karpenter `pkg/utils/workers`; spec/karpenter-core.md section 8.3.
        """
        cores = math.ceil((self.cpu_requests if self.cpu_requests > 0 else 1000) / 1000)
        return max(low, min(high, int((high - low) / 59 * (cores - 1)) + low))

    def _check(self) -> None:
        if self.provider == "aws" and not self.cluster_name:
            raise OptionsError("--cluster-name (or CLUSTER_NAME) is required with --provider=aws")
        if self.batch_idle_duration > self.batch_max_duration:
            raise OptionsError("--batch-idle-duration must not be longer than --batch-max-duration")
        ports = [("--metrics-port", self.metrics_port), ("--report-port", self.report_port)]
        for index, (flag, port) in enumerate(ports):
            for other, taken in (*ports[index + 1 :], ("--health-probe-port", self.health_probe_port)):
                if port and port == taken:
                    raise OptionsError(f"{flag} and {other} are both set to {port}; set them to different ports")


# --- settings that go; each is a hidden flag

_ACCEPTED: Final = {
    "karpenter_service": (TEXT, ""),
    "disable_controller_warmup": (BOOLEAN, True),
    "log_error_output_paths": (PATHS, ("stderr",)),
}
"""Karpenter's that mean nothing here, with their defaults; they stay, because its chart sets them."""
_FOLDED: Final = {
    "solve_deadline": "solve",
    "hold_ttl": "hold",
    "plan_ttl": "plan",
    "launch_timeout": "launch",
    "registration_timeout": "registration",
    "command_timeout": "command",
}
"""To the part of --timeouts that says it now. For one release they take effect where --timeouts does not name it."""
_REMOVED: Final = {
    "spot_refresh_interval": "spot prices are refreshed every 10 minutes",
    "price_refresh_interval": "on-demand prices are refreshed every 12 hours",
    "aws_mutating_qps": "mutating calls to each AWS service are limited to 5 per second",
    "aws_mutating_burst": "up to 50 mutating calls to each AWS service may exceed the rate in a burst",
    "aws_describing_qps": "reading calls to each AWS service are limited to 20 per second",
    "aws_describing_burst": "up to 100 reading calls to each AWS service may exceed the rate in a burst",
    "template_retention": "unused launch templates are deleted after 24 hours",
    "report_client_name": "client certificates of reporting extenders must contain the name dovetail-scheduler",
    "prefix_delegation": "the setting of the aws-node DaemonSet is used",
    "hostname_spread_domains": "annotate NodePools with dovetail.dev/hostname-domains instead",
    "intake_grace": "the time is 300 ms",
}
"""To what holds instead. For one release they are accepted."""
_GOING: Final = {
    **{name: (POSITIVE_DURATION, f"set --timeouts={part}={{}} instead") for name, part in _FOLDED.items()},
    "report_bind_address": (ADDRESS, "set --bind-address instead"),
    **{name: (TEXT, f"it has no effect: {instead}") for name, instead in _REMOVED.items()},
}


def _farewell(name: str, value: object, where: str) -> str:
    """What the log says of such a setting, if anything."""
    if name in _ACCEPTED:
        return Said(f"--{_flag(name)} is accepted but has no effect") if value != _ACCEPTED[name][1] else ""
    instead, named = _GOING[name][1].format(_shown(value)), where.rpartition(" ")[2]
    return Said(f"{named} is deprecated and will be removed in the next release; {instead}")


# --- the command line


class _Setting(click.Option):
    """One setting; variables are looked up in what `Options.parse` was given."""

    def __init__(self, name: str, type_: Parsed, prefix: str, doc: str, default: str = "", *, hidden: bool = False) -> None:
        super().__init__(
            [f"--{_flag(name)}"], type=type_, envvar=prefix + name.upper(), help=doc, show_default=default, hidden=hidden
        )

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        return ctx.obj.get(self.envvar) or None

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        named = f"{self.opts[0]} {self.type.name}   ${self.envvar}"
        return super().get_help_record(ctx) and (named, f"{self.help} Default: {self.show_default}.")


class WithSettings(click.Command):
    """A command that takes these settings beside options of its own: a shell proposes them, and their values."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        own = super().get_params(ctx)
        if not ctx.resilient_parsing:  # only a shell that completes parses so
            return own
        taken = {flag for one in own for flag in one.opts}
        settings = (one for one in command().params if isinstance(one, _Setting) and not one.hidden)
        return [*own, *(click.Option(one.opts, type=one.type, help=one.help) for one in settings if one.opts[0] not in taken)]


@functools.cache
def command() -> click.Command:
    """The command line, to be parsed and described; `Options.parse` runs it."""
    rows: list[click.Parameter] = [
        _Setting(name, one.metadata["type"], one.metadata["prefix"], one.metadata["doc"], _shown(one.default))
        for name, one in _settings().items()
    ]
    accepted = "Accepted for compatibility; it has no effect."
    rows += [_Setting(name, type_, "", accepted, hidden=True) for name, (type_, _) in _ACCEPTED.items()]
    rows += [
        _Setting(name, type_, _OWN, f"Deprecated; {instead.format('DURATION')}.", hidden=True)
        for name, (type_, instead) in _GOING.items()
    ]
    return click.Command(
        "dovetail provisioner",
        params=rows,
        help="Flags, and the environment variables that can be set instead:",
        add_help_option=False,
        context_settings={"allow_extra_args": True},
    )


def _context(argv: Sequence[str], env: Mapping[str, str]) -> click.Context:
    words = [_spelled(word) for word in argv]
    if not {"--help", "-h"}.isdisjoint(words):
        raise HelpRequested(usage())
    try:
        context = command().make_context("dovetail provisioner", words, obj=env)
    except click.NoSuchOption as error:
        raise OptionsError(_unknown_flag(error.option_name.lstrip("-"))) from None
    except click.BadOptionUsage as error:
        raise OptionsError(f"flag {error.option_name} requires a value") from None
    if context.args:
        raise OptionsError(f"{context.args[0]!r} is not a flag; flags begin with --")
    return context


def _spelled(word: str) -> str:
    """A flag as click has it: Go's -flag and --flag_name are --flag-name, --switch is --switch=true, and --no-switch is --switch=false."""
    found = re.fullmatch(r"--?([A-Za-z][\w-]+)(=.*)?", word, re.DOTALL)
    if found is None:
        return word
    flag, text = found[1].replace("_", "-"), found[2] or ""
    switches = {option.opts[0][2:] for option in command().params if option.type is BOOLEAN}
    if flag in switches:
        text = text or "=true"
    elif flag.removeprefix("no-") in switches:
        flag, off = flag.removeprefix("no-"), text[1:] if text else "true"
        text = f"={_shown(not _BOOLEANS[off]) if off in _BOOLEANS else off}"
    return f"--{flag}{text}"


def _where(context: click.Context, name: str) -> str:
    """The flag, or else the variable, that said it."""
    if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
        return f"flag --{_flag(name)}"
    return f"environment variable {next(one.envvar for one in context.command.params if one.name == name)}"


def _unknown_flag(flag: str) -> str:
    """What `OptionsError` says, with the flag that was probably meant."""
    close = closest(flag, map(_flag, _settings()))
    return (
        Said(f"unknown flag --{flag}; did you mean --{close}?")
        if close
        else Said(f"unknown flag --{flag}; --help lists all flags")
    )


def usage() -> str:
    """The text of --help: every flag with its variable and default."""
    return command().get_help(click.Context(command(), info_name="dovetail provisioner"))


def _settings() -> dict[str, Any]:
    return {one.name: one for one in fields(Options) if one.metadata}


def _flag(name: str) -> str:
    return name.replace("_", "-")


def _shown(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case timedelta():
            return f"{value.total_seconds():.12g}s"
        case tuple():
            return ",".join(str(item) for item in value) or "none"
        case "":
            return "none"
        case _:
            return str(value)
