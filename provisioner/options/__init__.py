"""The provisioner's settings: flags and environment variables, with Karpenter's names wherever it has the setting.

A flag wins over its variable, which wins over the default. The variable is the flag in upper snake case; settings that
Karpenter does not have carry DOVETAIL_ in front, so that a stranger's PROVIDER means nothing to us. What is wrong is said in
one sentence that names the flag or the variable, before anything is started.
"""
# ruff: noqa: RUF009  (the calls describe fields, as dataclasses.field does)

import base64
import ipaddress
import math
import re
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from datetime import timedelta
from typing import Annotated, Any, Final, Literal, NamedTuple, Self

import msgspec

from provisioner.values import yamltext
from provisioner.values.duration import DurationError, parse_duration
from provisioner.values.message import Said
from provisioner.values.spelling import closest

_NOT_A_DURATION: Final = 'must be a duration such as "10s", "1m30s" or "300ms"'


class OptionsError(ValueError):
    """A flag or a variable that cannot be used; the message is one sentence for the user."""


class HelpRequested(Exception):  # noqa: N818  (no error)
    """The user asked for --help; the message is the text to print."""


def _gate(name: str, *, default: bool = False) -> Any:
    return field(default=default, metadata={"gate": name})


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
        known, values, unknown = cls.known(), dict[str, bool](), set[str]()
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, equals, value = (piece.strip() for piece in part.partition("="))
            if not equals:
                raise ValueError(
                    f'must be a list such as "NodeRepair=true,NodeOverlay=false" with a value for {part!r}'
                )
            try:
                switch = _boolean(value)
            except ValueError:
                raise ValueError(f"must set feature gate {name} to true or false") from None
            if name in known:
                values[known[name]] = switch
            else:
                unknown.add(name)
        return cls(**values, unknown=tuple(sorted(unknown)))

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


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsFeatureGates(_Gates):
    """Karpenter's optional features of AWS; `nodeclass_cel`, expressions inside a class's kubelet, is accepted and not offered."""

    nodeclass_cel: bool = _gate("NodeClassCEL")


class SpreadDefault(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One default topology spread constraint of kube-scheduler, for pods that have none of their own."""

    max_skew: Annotated[int, msgspec.Meta(ge=1)]
    topology_key: Annotated[str, msgspec.Meta(min_length=1)]
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]


class _Spread(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    default_constraints: tuple[SpreadDefault, ...] = ()


class _SchedulerConfig(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The one part of a scheduler configuration that Karpenter reads."""

    pod_topology_spread: _Spread = _Spread()


@dataclass(frozen=True, slots=True)
class _Parser:
    """How text becomes a value; raises ValueError with the rest of a sentence ("must be ...")."""

    read: Callable[[str], Any]
    placeholder: str


_INTEGER = re.compile(r"[+-]?[0-9]+")
_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})


def _boolean(text: str) -> bool:
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise ValueError("must be true or false")


def _out_of_range(low: int, high: int | None) -> str:
    """What is wrong with the number of a flag; `high` is None where there is no maximum."""
    return Said(f"must be {low} or more") if high is None else Said(f"must be from {low} to {high}")


def _integer(low: int, high: int | None = None) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not _INTEGER.fullmatch(text):
            raise ValueError("must be a whole number")
        value = int(text)
        if value < low or (high is not None and value > high):
            raise ValueError(_out_of_range(low, high))
        return value

    return read


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError("must be a number")
    return value


def _nonnegative(text: str) -> float:
    value = _number(text)
    if value < 0:
        raise ValueError("must be 0 or more")
    return value


def _share(text: str) -> float:
    value = _number(text)
    if not 0 <= value < 1:
        raise ValueError("must be at least 0 and less than 1, such as 0.075 for 7.5 %")
    return value


def _url(text: str) -> str:
    parts = urllib.parse.urlsplit(text)
    if text and not (parts.scheme in ("http", "https") and parts.netloc):
        raise ValueError("must be a complete URL such as https://host:443")
    return text


def _bundle(text: str) -> str:
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError("must be a CA bundle in base64") from None
    return text


def _duration(text: str) -> timedelta:
    """Go's grammar: "10s", "1m30s", "300ms"; not negative."""
    try:
        value = parse_duration(text)
    except DurationError:
        raise ValueError(_NOT_A_DURATION) from None
    if value < timedelta():
        raise ValueError(_NOT_A_DURATION)
    return value


def _positive_duration(text: str) -> timedelta:
    value = _duration(text)
    if not value:
        raise ValueError("must be longer than 0")
    return value


def _minute(text: str) -> timedelta:
    value = _duration(text)
    if value < timedelta(minutes=1):
        raise ValueError("must be 1m or longer")
    return value


def _not_one_of(choices: Sequence[str]) -> str:
    """What is wrong with a flag that takes one of several words; "" may be one of them."""
    return Said(f"must be one of {', '.join(choice or 'an empty value' for choice in choices)}")


def _choice(*choices: str) -> _Parser:
    def read(text: str) -> str:
        if text in choices:
            return text
        raise ValueError(_not_one_of(choices))

    return _Parser(read, "|".join(filter(None, choices)))


def _address(text: str) -> str:
    if text:
        try:
            ipaddress.ip_address(text)
        except ValueError:
            raise ValueError("must be an IP address of this host, or empty for all addresses") from None
    return text


def _host_port(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if text and not (host and colon and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError('must be host:port, such as "10.0.0.7:8444"')
    return text


def _paths(text: str) -> tuple[str, ...]:
    paths = tuple(path.strip() for path in text.split(",") if path.strip())
    if not paths:
        raise ValueError("must name at least one of stdout, stderr or a file")
    return paths


def _scheduler_config(text: str) -> tuple[SpreadDefault, ...]:
    try:
        document = yamltext.only(text.encode())
        found = msgspec.convert({} if document is None else document, _SchedulerConfig)
    except (yamltext.DocumentError, msgspec.ValidationError) as error:
        raise ValueError(
            "must be a scheduler configuration in YAML or JSON, with podTopologySpread.defaultConstraints alone "
            f"({error})"
        ) from None
    return found.pod_topology_spread.default_constraints


_TEXT = _Parser(str, "TEXT")
_BOOLEAN = _Parser(_boolean, "true|false")
_PORT = _Parser(_integer(0, 65535), "PORT")
_DURATION = _Parser(_duration, "DURATION")
_POSITIVE_DURATION = _Parser(_positive_duration, "DURATION")
_RATE = _Parser(_nonnegative, "NUMBER")
_BURST = _Parser(_integer(1), "NUMBER")


def _setting(default: Any, parser: _Parser, doc: str, *, prefix: str = "", effect: bool = True) -> Any:
    """One setting; without `effect` it is only accepted, and said to have none where it is used."""
    return field(default=default, metadata={"parser": parser, "doc": doc, "prefix": prefix, "effect": effect})


def _own(default: Any, parser: _Parser, doc: str) -> Any:
    return _setting(default, parser, doc, prefix="DOVETAIL_")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Every setting of the provisioner; immutable. Field names are the flags with underscores.

    `parse` reads flags and variables; a test builds one with keywords.
    """

    # Karpenter's
    karpenter_service: str = _setting(
        "", _TEXT, "Accepted for compatibility; the name of the Service is not used.", effect=False
    )
    metrics_port: int = _setting(8080, _PORT, "Port that serves /metrics.")
    health_probe_port: int = _setting(8081, _PORT, "Port that serves /healthz and /readyz.")
    kube_client_qps: float = _setting(
        200.0, _Parser(_number, "NUMBER"), "Sustained rate of requests to the API server, per second; 0 means no limit."
    )
    kube_client_burst: int = _setting(
        300, _Parser(_integer(1), "NUMBER"), "Requests to the API server that may exceed the sustained rate in a burst."
    )
    enable_profiling: bool = _setting(False, _BOOLEAN, "Serve /debug/stacks on the metrics port.")
    disable_controller_warmup: bool = _setting(
        True,
        _BOOLEAN,
        "Accepted for compatibility; caches are always filled before a replica becomes the leader.",
        effect=False,
    )
    disable_leader_election: bool = _setting(False, _BOOLEAN, "Disable leader election; only safe with one replica.")
    disable_cluster_state_observability: bool = _setting(
        False, _BOOLEAN, "Disable metrics of individual pods, nodes and NodePools."
    )
    leader_election_name: str = _setting("karpenter-leader-election", _TEXT, "Name of the leader election Lease.")
    leader_election_namespace: str = _setting(
        "", _TEXT, "Namespace of the leader election Lease; if empty, the system namespace."
    )
    memory_limit: int = _setting(
        -1,
        _Parser(_integer(-1), "BYTES"),
        "Memory limit of this container in bytes; unused memory is released above 90 % of it. -1 means no limit.",
    )
    cpu_requests: int = _setting(
        1000,
        _Parser(_integer(-(10**9)), "MILLICORES"),
        "CPU request of this container in millicores; determines the number of workers.",
    )
    log_level: str = _setting("info", _choice("debug", "info", "error", ""), "Least severe level that is logged.")
    log_output_paths: tuple[str, ...] = _setting(
        ("stdout",), _Parser(_paths, "LIST"), "Destinations of logs: stdout, stderr or file paths."
    )
    log_error_output_paths: tuple[str, ...] = _setting(
        ("stderr",), _Parser(_paths, "LIST"), "Destinations of errors of the logger itself."
    )
    batch_max_duration: timedelta = _setting(
        timedelta(seconds=10),
        _POSITIVE_DURATION,
        "Maximum time that pods are collected into a batch before they are planned.",
    )
    batch_idle_duration: timedelta = _setting(
        timedelta(seconds=1), _POSITIVE_DURATION, "Time without a new pending pod after which a batch ends."
    )
    preference_policy: str = _setting(
        "Respect",
        _choice("Respect", "Ignore"),
        "Whether preferred affinities are respected.",
    )
    min_values_policy: str = _setting("Strict", _choice("Strict", "BestEffort"), "Whether minValues may be relaxed.")
    ignore_dra_requests: bool = _setting(
        True,
        _BOOLEAN,
        "Do not schedule pods with DRA resource claims; if false, they are scheduled as if they had none.",
    )
    scheduler_config: tuple[SpreadDefault, ...] = _setting(
        (),
        _Parser(_scheduler_config, "YAML"),
        "Scheduler configuration in YAML; only podTopologySpread.defaultConstraints is read.",
    )
    feature_gates: FeatureGates = _setting(
        FeatureGates(), _Parser(FeatureGates.parse, "LIST"), "Feature gates as Name=true,Name=false."
    )

    # Karpenter's, for AWS
    cluster_name: str = _setting("", _TEXT, "Name of the cluster; required with --provider=aws.")
    cluster_endpoint: str = _setting(
        "", _Parser(_url, "URL"), "URL of the API server for new nodes; if empty, discovered from EKS."
    )
    cluster_ca_bundle: str = _setting(
        "",
        _Parser(_bundle, "BASE64"),
        "CA bundle of the API server for new nodes, in base64; if empty, the CA of the provisioner's own connection.",
    )
    isolated_vpc: bool = _setting(
        False,
        _BOOLEAN,
        "Call no AWS services that have no VPC endpoint: no Pricing API, no cleanup of instance profiles.",
    )
    eks_control_plane: bool = _setting(
        False, _BOOLEAN, "Read the version of the cluster from EKS instead of the API server."
    )
    vm_memory_overhead_percent: float = _setting(
        0.075, _Parser(_share, "SHARE"), "Estimated share of an instance's memory that is not available to the node."
    )
    interruption_queue: str = _setting(
        "", _TEXT, "Name of the SQS queue with interruption messages; if empty, interruptions are not handled."
    )
    reserved_enis: int = _setting(
        0, _Parser(_integer(0), "NUMBER"), "Number of network interfaces per node that are not used for pods."
    )
    disable_dry_run: bool = _setting(False, _BOOLEAN, "Validate EC2NodeClasses without dry-run calls to EC2.")
    enable_zonal_shift: bool = _setting(
        False, _BOOLEAN, "Launch no instances in zones that an ARC zonal shift moves traffic away from."
    )
    translate_provisioners: bool = _own(
        False,
        _BOOLEAN,
        "Translate Provisioners and AWSNodeTemplates of Karpenter before v1beta1 (component conversion).",
    )
    ami_refresh_interval: timedelta = _setting(
        timedelta(minutes=1), _Parser(_minute, "DURATION"), "Interval between refreshes of AMIs."
    )
    subnet_refresh_interval: timedelta = _setting(
        timedelta(minutes=1), _Parser(_minute, "DURATION"), "Interval between refreshes of subnets."
    )
    aws_feature_gates: AwsFeatureGates = _setting(
        AwsFeatureGates(), _Parser(AwsFeatureGates.parse, "LIST"), "AWS feature gates as Name=true,Name=false."
    )

    # ours
    kubeconfig: str = _setting(
        "",
        _TEXT,
        "Path of a kubeconfig file; if empty, the service account of the pod or else the user's default kubeconfig.",
    )
    bind_address: str = _own(
        "", _Parser(_address, "ADDRESS"), "Address that metrics and probes are served on; if empty, all addresses."
    )
    system_namespace: str = _setting(
        "dovetail-system", _TEXT, "Namespace of the Leases, ConfigMaps and Secrets of Dovetail."
    )
    karpenter_namespace: str = _own(
        "",
        _TEXT,
        "Namespace of a Karpenter beside Dovetail, in addition to karpenter and kube-system. While Karpenter holds its Lease there, "
        "Dovetail launches nothing and starts no disruption.",
    )
    provider: str = _own("kwok", _choice("aws", "kwok"), "Cloud provider that launches the nodes.")
    instance_types_file_path: str = _setting(
        "", _TEXT, "JSON file with instance types for kwok; if empty, the built-in instance types."
    )
    nominate: str = _own(
        "auto",
        _choice("true", "false", "auto"),
        "Nominate planned pods to their new node before its taint is removed; auto nominates only while no extender sends reports, "
        "and only pods that kube-scheduler would not place by itself.",
    )
    report_bind_address: str = _own(
        "", _Parser(_address, "ADDRESS"), "Address that accepts reports of the extender; if empty, all addresses."
    )
    report_port: int = _own(8444, _PORT, "Port that accepts reports of the extender; 0 chooses a free port.")
    report_address: str = _own(
        "",
        _Parser(_host_port, "HOST:PORT"),
        "Address at which extenders reach that port, published on the Lease; if empty, the address of this host.",
    )
    report_cert_dir: str = _own(
        "",
        _TEXT,
        "Directory with tls.crt, tls.key and ca.crt for reports over mTLS; if empty, reports are accepted on loopback only.",
    )
    report_client_name: str = _own(
        "dovetail-scheduler",
        _TEXT,
        "Name that the client certificate of a reporting extender must contain; if empty, any name.",
    )
    why_port: int = _own(
        0,
        _PORT,
        "Port on 127.0.0.1 at which the leader answers `dovetail why` through a port-forward; 0 means that it does not.",
    )
    intake_grace: timedelta = _own(
        timedelta(milliseconds=300),
        _DURATION,
        "Time after which a pod that fits on no node is planned even if kube-scheduler has not marked it unschedulable.",
    )
    hold_ttl: timedelta = _own(
        timedelta(minutes=2), _POSITIVE_DURATION, "Maximum time that room on a ready node is held for its planned pods."
    )
    solve_deadline: timedelta = _own(
        timedelta(seconds=10),
        _POSITIVE_DURATION,
        "Maximum time for planning one batch; the best plan so far is used and the remaining pods are planned in the next batch.",
    )
    hostname_spread_domains: int = _own(
        3,
        _Parser(_integer(0, 999_999), "NUMBER"),
        "Minimum number of nodes for a hostname spread with DoNotSchedule and without minDomains; 1 follows kube-scheduler, 0 plans a node "
        "for every maxSkew pods. The annotation dovetail.dev/hostname-domains of a NodePool overrides it.",
    )
    packing: str = _own(
        "cost",
        _choice("cost", "greedy"),
        "How nodes are chosen for pending pods: with cost, a planner looks for the cheapest nodes while the batch has time; with greedy, pods are "
        "packed by decreasing size, as Karpenter does. The annotation dovetail.dev/packing of a NodePool overrides it.",
    )
    plan_ttl: timedelta = _own(
        timedelta(minutes=15),
        _POSITIVE_DURATION,
        "Maximum time that room for a planned pod is kept on a node that does not become initialized.",
    )
    command_timeout: timedelta = _own(
        timedelta(minutes=10),
        _POSITIVE_DURATION,
        "Time without progress after which a disruption command is canceled and its nodes accept pods again.",
    )
    launch_timeout: timedelta = _own(
        timedelta(minutes=5),
        _POSITIVE_DURATION,
        "Time after which a NodeClaim whose instance has not launched is deleted.",
    )
    registration_timeout: timedelta = _own(
        timedelta(minutes=15),
        _POSITIVE_DURATION,
        "Time after which a NodeClaim whose Node has not registered is deleted.",
    )
    drain_timeout: timedelta = _own(
        timedelta(0),
        _DURATION,
        "terminationGracePeriod of NodeClaims that have none: time from their deletion after which their pods are deleted. 0 waits without limit.",
    )
    repair_timeout: timedelta = _own(
        timedelta(0),
        _DURATION,
        "Time that a Node condition which means a broken node must last before the node is replaced (feature gate NodeRepair); "
        "0 uses the times of the cloud provider, 10 to 30 minutes.",
    )
    aws_region: str = _setting(
        "", _TEXT, "Region of the cluster; if empty, the Region of the instance that the provisioner runs on."
    )
    consolidation: str = _own(
        "saving",
        _choice("saving", "karpenter"),
        "When nodes are consolidated: with saving, if the savings of four hours exceed the cost of evictions and launches; "
        "with karpenter, if there are any savings.",
    )
    max_disrupting_nodes: int = _own(
        0,
        _Parser(_integer(0), "NUMBER"),
        "Maximum number of nodes, over all NodePools, that are disrupted at the same time, including nodes that are not Ready; 0 means no limit.",
    )
    max_claims_per_minute: int = _own(
        0,
        _Parser(_integer(0), "NUMBER"),
        "Maximum number of NodeClaims, of all NodePools and including replacements, that are created within a minute; 0 means no limit.",
    )
    max_usd_per_hour: float = _own(
        0.0,
        _Parser(_nonnegative, "USD"),
        "Maximum price of all nodes together, in USD per hour; no NodeClaim that would exceed it is created. 0 means no limit.",
    )
    spot_refresh_interval: timedelta = _own(
        timedelta(minutes=10), _Parser(_minute, "DURATION"), "Interval between refreshes of spot prices."
    )
    price_refresh_interval: timedelta = _own(
        timedelta(hours=12), _Parser(_minute, "DURATION"), "Interval between refreshes of on-demand prices."
    )
    discounts: str = _own(
        "", _TEXT, "YAML file with discounts, or configmap/NAME in the system namespace; if empty, list prices apply."
    )
    prefix_delegation: str = _own(
        "auto",
        _choice("true", "false", "auto"),
        "Whether the VPC CNI uses prefix delegation; auto reads the setting from the aws-node DaemonSet.",
    )
    rebalance: str = _own(
        "ignore",
        _choice("ignore", "replace", "drain"),
        "Reaction to a rebalance recommendation for a Spot Instance.",
    )
    aws_mutating_qps: float = _own(
        5.0, _RATE, "Sustained rate of mutating calls to each AWS service, per second; 0 means no limit."
    )
    aws_mutating_burst: int = _own(
        50, _BURST, "Mutating calls to each AWS service that may exceed the sustained rate in a burst."
    )
    aws_describing_qps: float = _own(
        20.0, _RATE, "Sustained rate of reading calls to each AWS service, per second; 0 means no limit."
    )
    aws_describing_burst: int = _own(
        100, _BURST, "Reading calls to each AWS service that may exceed the sustained rate in a burst."
    )
    template_retention: timedelta = _own(
        timedelta(hours=24), _POSITIVE_DURATION, "Time after which an unused launch template is deleted."
    )
    check_state: bool = _own(
        False,
        _BOOLEAN,
        "Rebuild the cluster state after every event and log differences; slow, for debugging.",
    )
    log_format: str = _own("json", _choice("json", "text"), "Format of log lines.")

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
        values: dict[str, Any] = {}
        for name in _settings():
            variable = _variable(name)
            if env.get(variable):
                values[name] = _read(name, env[variable], f"environment variable {variable}")
        for name, text, flag in _flags(argv):
            values[name] = _read(name, text, f"flag {flag}")
        options = cls(**values)
        options._check()
        return options

    def without_effect(self) -> tuple[str, ...]:
        """What was asked for and changes nothing, a sentence each: to be logged at the start."""
        said = [
            f"--{_flag(name)} is accepted but has no effect"
            for name, setting in _settings().items()
            if not setting.metadata["effect"] and getattr(self, name) != setting.default
        ]
        for flag, gates, known in (
            ("--feature-gates", self.feature_gates, {}),
            ("--aws-feature-gates", self.aws_feature_gates, AwsFeatureGates.known()),
        ):
            said += [
                f"{flag}: {name}=true is accepted but has no effect because the feature is not available in this version"
                for name, attribute in sorted(known.items())
                if getattr(gates, attribute)
            ]
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


class Listed(NamedTuple):
    """One setting, as help and reference show it."""

    flag: str
    variable: str
    placeholder: str
    default: str
    doc: str
    effect: bool


def listed() -> list[Listed]:
    """Every setting, in the order of `Options`."""
    return [
        Listed(
            _flag(name),
            _variable(name),
            setting.metadata["parser"].placeholder,
            _shown(setting.default),
            setting.metadata["doc"],
            setting.metadata["effect"],
        )
        for name, setting in _settings().items()
    ]


def usage() -> str:
    """The text of --help: every flag with its variable and default."""
    lines = ["Flags, and the environment variables that can be set instead:", ""]
    for one in listed():
        lines.append(f"  --{one.flag} {one.placeholder}   ${one.variable}")
        lines.append(f"        {one.doc} Default: {one.default}.")
    return "\n".join(lines)


def _settings() -> dict[str, Any]:
    return {setting.name: setting for setting in fields(Options) if setting.default is not MISSING}


def _flag(name: str) -> str:
    return name.replace("_", "-")


def _variable(name: str) -> str:
    prefix: str = _settings()[name].metadata["prefix"]
    return prefix + name.upper()


def _shown(default: object) -> str:
    match default:
        case bool():
            return "true" if default else "false"
        case timedelta():
            return f"{default.total_seconds():g}s"
        case tuple():
            return ",".join(str(item) for item in default) or "none"
        case "":
            return "none"
        case _:
            return str(default)


def _read(name: str, text: str, where: str) -> Any:
    parser: _Parser = _settings()[name].metadata["parser"]
    try:
        return parser.read(text)
    except ValueError as error:
        raise OptionsError(f"{where} {error}, not {text!r}") from None


def _unknown_flag(flag: str, close: str) -> str:
    """What `OptionsError` says; `close` is the flag that was probably meant, or ""."""
    return (
        Said(f"unknown flag --{flag}; did you mean --{close}?")
        if close
        else Said(f"unknown flag --{flag}; --help lists all flags")
    )


def _flags(argv: Sequence[str]) -> list[tuple[str, str, str]]:
    """(setting, text, flag as it was given) of each flag, in order."""
    settings = _settings()
    switches = {name for name, setting in settings.items() if isinstance(setting.default, bool)}
    found: list[tuple[str, str, str]] = []
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if word in ("--help", "-h", "-help"):
            raise HelpRequested(usage())
        if not word.startswith("-") or not word.strip("-"):
            raise OptionsError(f"{word!r} is not a flag; flags begin with --")
        flag, equals, text = word.lstrip("-").partition("=")
        name, negated = flag.replace("-", "_"), False
        if name not in settings and name.removeprefix("no_") in switches:
            name, negated = name.removeprefix("no_"), True
        if name not in settings:
            raise OptionsError(_unknown_flag(flag, closest(flag, map(_flag, settings))))
        if not equals:
            if name in switches:
                text = "true"
            elif rest and (not rest[0].startswith("--") or rest[0] == "--"):
                text = rest.pop(0)
            else:
                raise OptionsError(f"flag --{flag} requires a value")
        if negated:
            text = "false" if _read(name, text, f"flag --{flag}") else "true"
        found.append((name, text, f"--{flag}"))
    return found
