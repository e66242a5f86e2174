"""The provisioner's settings: flags and environment variables, with Karpenter's names wherever it has the setting.

A flag wins over its variable, which wins over the default. The variable is the flag in upper snake case; settings that
Karpenter does not have carry DOVETAIL_ in front, so that a stranger's PROVIDER means nothing to us. What is wrong is said in
one sentence that names the flag or the variable, before anything is started.
"""
# ruff: noqa: RUF009  (the calls describe fields, as dataclasses.field does)

import base64
import difflib
import ipaddress
import math
import re
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from datetime import timedelta
from typing import Any, NamedTuple

import yaml


class OptionsError(ValueError):
    """A flag or a variable that cannot be used; the message is one sentence for the user."""


class HelpRequested(Exception):  # noqa: N818  (no error)
    """The user asked for --help; the message is the text to print."""


@dataclass(frozen=True, slots=True)
class FeatureGates:
    """Karpenter's optional features.

    Attributes:
        unknown: gates of other versions, kept to be named in the log; they switch nothing.
    """

    node_repair: bool = False
    reserved_capacity: bool = True
    spot_to_spot_consolidation: bool = False
    node_overlay: bool = False
    static_capacity: bool = False
    capacity_buffer: bool = False
    unknown: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ",".join(
            f"{name}={'true' if getattr(self, attribute) else 'false'}" for name, attribute in _GATES.items()
        )


_GATES: Mapping[str, str] = {
    "NodeRepair": "node_repair",
    "ReservedCapacity": "reserved_capacity",
    "SpotToSpotConsolidation": "spot_to_spot_consolidation",
    "NodeOverlay": "node_overlay",
    "StaticCapacity": "static_capacity",
    "CapacityBuffer": "capacity_buffer",
}


@dataclass(frozen=True, slots=True)
class AwsFeatureGates:
    """Karpenter's optional features of AWS.

    Attributes:
        nodeclass_cel: expressions inside a class's kubelet; accepted and not offered, see its condition.
        unknown: gates of other versions; they switch nothing.
    """

    nodeclass_cel: bool = False
    unknown: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"NodeClassCEL={'true' if self.nodeclass_cel else 'false'}"


_GATES_WITHOUT_EFFECT = frozenset({"node_overlay", "static_capacity", "capacity_buffer"})
"""Their features are not built yet."""

_AWS_GATES: Mapping[str, str] = {"NodeClassCEL": "nodeclass_cel"}


@dataclass(frozen=True, slots=True)
class SpreadDefault:
    """One default topology spread constraint of kube-scheduler, for pods that have none of their own."""

    max_skew: int
    topology_key: str
    when_unsatisfiable: str


@dataclass(frozen=True, slots=True)
class _Parser:
    """How text becomes a value; raises ValueError with the rest of a sentence ("must be ...")."""

    read: Callable[[str], Any]
    placeholder: str


_INTEGER = re.compile(r"[+-]?[0-9]+")
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_UNIT_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})


def _boolean(text: str) -> bool:
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise ValueError("must be true or false")


def _integer(low: int, high: int | None = None) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not _INTEGER.fullmatch(text):
            raise ValueError("must be a whole number")
        value = int(text)
        if value < low or (high is not None and value > high):
            raise ValueError(f"must be {low} or more" if high is None else f"must be from {low} to {high}")
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
        raise ValueError("must be from 0 to below 1, as 0.075 for 7.5 %")
    return value


def _url(text: str) -> str:
    parts = urllib.parse.urlsplit(text)
    if text and not (parts.scheme in ("http", "https") and parts.netloc):
        raise ValueError("must be a whole URL, as https://host:443")
    return text


def _bundle(text: str) -> str:
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError("must be the CA in base64") from None
    return text


def _duration(text: str) -> timedelta:
    """Go's grammar: "10s", "1m30s", "300ms"; not negative."""
    seconds, at = 0.0, 0
    for match in _DURATION_PART.finditer(text):
        if match.start() != at:
            break
        seconds += float(match[1]) * _UNIT_SECONDS[match[2]]
        at = match.end()
    if text != "0" and (not text or at != len(text)):
        raise ValueError('must be a duration such as "10s", "1m30s" or "300ms"')
    return timedelta(seconds=seconds)


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


def _choice(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text in choices:
            return text
        raise ValueError(f"must be one of {', '.join(choice or 'nothing at all' for choice in choices)}")

    return read


def _address(text: str) -> str:
    if text:
        try:
            ipaddress.ip_address(text)
        except ValueError:
            raise ValueError("must be an IP address of this machine, or nothing for all of them") from None
    return text


def _host_port(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if text and not (host and colon and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError('must be host:port, as "10.0.0.7:8444"')
    return text


def _paths(text: str) -> tuple[str, ...]:
    paths = tuple(path.strip() for path in text.split(",") if path.strip())
    if not paths:
        raise ValueError("must name at least one of stdout, stderr or a file")
    return paths


def _feature_gates(text: str) -> FeatureGates:
    values, unknown = _gates(text, _GATES)
    return FeatureGates(**values, unknown=unknown)


def _aws_feature_gates(text: str) -> AwsFeatureGates:
    values, unknown = _gates(text, _AWS_GATES)
    return AwsFeatureGates(**values, unknown=unknown)


def _gates(text: str, known: Mapping[str, str]) -> tuple[dict[str, bool], tuple[str, ...]]:
    """What the list says of the known gates, by attribute, and the names of the others."""
    values: dict[str, bool] = {}
    unknown: set[str] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise ValueError(f'must be a list as "NodeRepair=true,NodeOverlay=false", and {part!r} has no value')
        try:
            switch = _boolean(value)
        except ValueError:
            raise ValueError(f"must give true or false to every gate, and {name} has {value!r}") from None
        if name in known:
            values[known[name]] = switch
        else:
            unknown.add(name)
    return values, tuple(sorted(unknown))


def _scheduler_config(text: str) -> tuple[SpreadDefault, ...]:
    """The one part of a scheduler configuration that Karpenter reads: podTopologySpread.defaultConstraints."""
    if not text.strip():
        return ()
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"must be YAML or JSON ({' '.join(str(error).split())})") from None
    if document is None:
        return ()
    spread = _mapping(document, "the configuration", {"podTopologySpread"}).get("podTopologySpread", {})
    constraints = _mapping(spread, "podTopologySpread", {"defaultConstraints"}).get("defaultConstraints", [])
    if not isinstance(constraints, list):
        raise ValueError("must have a list as podTopologySpread.defaultConstraints")  # noqa: TRY004  (about text)
    return tuple(
        _spread_default(item, f"podTopologySpread.defaultConstraints[{number}]")
        for number, item in enumerate(constraints)
    )


def _spread_default(item: object, where: str) -> SpreadDefault:
    values = _mapping(item, where, {"maxSkew", "topologyKey", "whenUnsatisfiable"})
    skew, key, when = values.get("maxSkew"), values.get("topologyKey"), values.get("whenUnsatisfiable")
    if not isinstance(skew, int) or isinstance(skew, bool) or skew < 1:
        raise ValueError(f"must have a whole number above 0 as {where}.maxSkew")
    if not isinstance(key, str) or not key:
        raise ValueError(f"must have a label name as {where}.topologyKey")
    if when not in ("DoNotSchedule", "ScheduleAnyway"):
        raise ValueError(f"must have DoNotSchedule or ScheduleAnyway as {where}.whenUnsatisfiable")
    return SpreadDefault(skew, key, str(when))


def _mapping(value: object, where: str, known: set[str]) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"must have fields in {where}")  # noqa: TRY004  (about text)
    for name in value:
        if name not in known:
            raise ValueError(f"must not have {name!r} in {where}; only {', '.join(sorted(known))} is read")
    return value


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
        "", _TEXT, "Accepted for compatibility: nothing here needs the Service's name.", effect=False
    )
    metrics_port: int = _setting(8080, _PORT, "Port of /metrics.")
    health_probe_port: int = _setting(8081, _PORT, "Port of /healthz and /readyz.")
    kube_client_qps: float = _setting(
        200.0, _Parser(_number, "NUMBER"), "Requests a second to the API server over a longer time; 0 is no limit."
    )
    kube_client_burst: int = _setting(300, _Parser(_integer(1), "NUMBER"), "Requests to the API server at once.")
    enable_profiling: bool = _setting(False, _BOOLEAN, "Serve /debug/stacks on the metrics port.")
    disable_controller_warmup: bool = _setting(
        True, _BOOLEAN, "Accepted for compatibility: caches are always filled before leading.", effect=False
    )
    disable_leader_election: bool = _setting(False, _BOOLEAN, "Work without a Lease; only safe with one replica.")
    disable_cluster_state_observability: bool = _setting(
        False, _BOOLEAN, "Leave out the metrics of single pods, nodes and pools."
    )
    leader_election_name: str = _setting("karpenter-leader-election", _TEXT, "Name of the Lease.")
    leader_election_namespace: str = _setting("", _TEXT, "Namespace of the Lease; empty is the system namespace.")
    memory_limit: int = _setting(
        -1,
        _Parser(_integer(-1), "BYTES"),
        "Memory of this container; above 90 % of it memory is given back. -1 is none.",
    )
    cpu_requests: int = _setting(
        1000, _Parser(_integer(-(10**9)), "MILLICORES"), "CPU of this container; decides the number of workers."
    )
    log_level: str = _setting(
        "info", _Parser(_choice("debug", "info", "error", ""), "debug|info|error"), "How much is logged."
    )
    log_output_paths: tuple[str, ...] = _setting(
        ("stdout",), _Parser(_paths, "LIST"), "Where logs go: stdout, stderr or files."
    )
    log_error_output_paths: tuple[str, ...] = _setting(
        ("stderr",), _Parser(_paths, "LIST"), "Where failures of the logger itself go."
    )
    batch_max_duration: timedelta = _setting(
        timedelta(seconds=10), _POSITIVE_DURATION, "Longest time that pods are gathered before planning."
    )
    batch_idle_duration: timedelta = _setting(
        timedelta(seconds=1), _POSITIVE_DURATION, "A batch ends when no new pod came for this long."
    )
    preference_policy: str = _setting(
        "Respect", _Parser(_choice("Respect", "Ignore"), "Respect|Ignore"), "Whether preferred affinities count."
    )
    min_values_policy: str = _setting(
        "Strict", _Parser(_choice("Strict", "BestEffort"), "Strict|BestEffort"), "Whether minValues may be relaxed."
    )
    ignore_dra_requests: bool = _setting(
        True, _BOOLEAN, "Refuse pods with resource claims; false places them as if they had none."
    )
    scheduler_config: tuple[SpreadDefault, ...] = _setting(
        (), _Parser(_scheduler_config, "YAML"), "podTopologySpread.defaultConstraints of the scheduler."
    )
    feature_gates: FeatureGates = _setting(
        FeatureGates(), _Parser(_feature_gates, "LIST"), "Optional features, as Name=true,Name=false."
    )

    # Karpenter's, for AWS
    cluster_name: str = _setting("", _TEXT, "Name of the cluster; with --provider=aws it is required.")
    cluster_endpoint: str = _setting(
        "", _Parser(_url, "URL"), "The API server as new machines reach it; empty is what EKS says."
    )
    cluster_ca_bundle: str = _setting(
        "", _Parser(_bundle, "BASE64"), "The CA of the API server; empty is that of our own connection."
    )
    isolated_vpc: bool = _setting(
        False, _BOOLEAN, "Call no service without an endpoint in the VPC: no Pricing API, no clean-up of profiles."
    )
    eks_control_plane: bool = _setting(False, _BOOLEAN, "Ask EKS for the version of the cluster, not the API server.")
    vm_memory_overhead_percent: float = _setting(
        0.075, _Parser(_share, "SHARE"), "Share of a machine's memory that its node is guessed not to see."
    )
    interruption_queue: str = _setting("", _TEXT, "Name of the SQS queue of interruptions; empty reads none.")
    reserved_enis: int = _setting(0, _Parser(_integer(0), "NUMBER"), "Network interfaces that are not for pods.")
    disable_dry_run: bool = _setting(False, _BOOLEAN, "Check classes without dry runs of what they would launch.")
    enable_zonal_shift: bool = _setting(False, _BOOLEAN, "Launch nothing in zones that ARC shifts traffic away from.")
    ami_refresh_interval: timedelta = _setting(
        timedelta(minutes=1), _Parser(_minute, "DURATION"), "How old a list of images may be."
    )
    subnet_refresh_interval: timedelta = _setting(
        timedelta(minutes=1), _Parser(_minute, "DURATION"), "How old a list of subnets may be."
    )
    aws_feature_gates: AwsFeatureGates = _setting(
        AwsFeatureGates(), _Parser(_aws_feature_gates, "LIST"), "Optional features of AWS, as Name=true."
    )

    # ours
    kubeconfig: str = _setting(
        "", _TEXT, "Kubeconfig file; empty is this pod's service account, else the user's own file."
    )
    bind_address: str = _own(
        "", _Parser(_address, "ADDRESS"), "Address that metrics and probes listen on; empty is all."
    )
    system_namespace: str = _setting("dovetail-system", _TEXT, "Namespace of our own objects.")
    provider: str = _own("kwok", _Parser(_choice("aws", "kwok"), "aws|kwok"), "Where machines come from.")
    instance_types_file_path: str = _setting(
        "", _TEXT, "Catalogue of instance types for kwok; empty is the built-in one."
    )
    nominate: str = _own(
        "auto",
        _Parser(_choice("true", "false", "auto"), "true|false|auto"),
        "Nominate planned pods to their new node before its taint falls; auto does while no extender reports.",
    )
    report_bind_address: str = _own(
        "", _Parser(_address, "ADDRESS"), "Address that the extender's reports are taken on; empty is all."
    )
    report_port: int = _own(8444, _PORT, "Port that the extender's reports are taken on; 0 lets the system choose.")
    report_address: str = _own(
        "",
        _Parser(_host_port, "HOST:PORT"),
        "Where extenders reach that port; written on the Lease. Empty is this host.",
    )
    report_cert_dir: str = _own(
        "", _TEXT, "Directory of tls.crt, tls.key and ca.crt for reports over mTLS; empty takes them on loopback only."
    )
    report_client_name: str = _own(
        "dovetail-scheduler", _TEXT, "Name that a reporting extender's certificate has to be for; empty is any name."
    )
    intake_grace: timedelta = _own(
        timedelta(milliseconds=300),
        _DURATION,
        "A pod that fits nowhere is planned after this long, Unschedulable or not.",
    )
    hold_ttl: timedelta = _own(
        timedelta(minutes=2), _POSITIVE_DURATION, "Longest time that a ready node is held for its planned pods."
    )
    solve_deadline: timedelta = _own(
        timedelta(seconds=10),
        _POSITIVE_DURATION,
        "Longest time that a batch is planned for; the best plan so far is used, and the rest is planned next.",
    )
    hostname_spread_domains: int = _own(
        3,
        _Parser(_integer(0, 999_999), "NUMBER"),
        "Nodes over which a hard hostname spread without minDomains is planned; 1 is what kube-scheduler asks for, 0 is a node "
        "for every maxSkew pods. The annotation dovetail.dev/hostname-domains on a NodePool overrides it.",
    )
    plan_ttl: timedelta = _own(
        timedelta(minutes=15),
        _POSITIVE_DURATION,
        "Longest time that a planned pod keeps its place on a node that never initializes.",
    )
    command_timeout: timedelta = _own(
        timedelta(minutes=10),
        _POSITIVE_DURATION,
        "Time without progress after which a disruption command is called off and its nodes take pods again.",
    )
    consolidation: str = _own(
        "saving",
        _Parser(_choice("saving", "karpenter"), "saving|karpenter"),
        "When a consolidation pays: saving weighs what it saves in an hour against evictions and launches, karpenter takes any saving.",
    )
    max_disrupting_nodes: int = _own(
        0,
        _Parser(_integer(0), "NUMBER"),
        "Nodes of all NodePools together that may be disrupted at once, those that are not Ready counted; 0 is no limit.",
    )
    aws_region: str = _setting("", _TEXT, "Region of the cluster; empty is the region of this machine.")
    spot_refresh_interval: timedelta = _own(
        timedelta(minutes=10), _Parser(_minute, "DURATION"), "How old spot prices may be."
    )
    price_refresh_interval: timedelta = _own(
        timedelta(hours=12), _Parser(_minute, "DURATION"), "How old on-demand prices may be."
    )
    discounts: str = _own(
        "", _TEXT, "YAML file of discounts, or configmap/NAME in the system namespace; empty is the list price."
    )
    prefix_delegation: str = _own(
        "auto",
        _Parser(_choice("true", "false", "auto"), "true|false|auto"),
        "Whether the VPC CNI hands out prefixes; auto asks the aws-node DaemonSet.",
    )
    rebalance: str = _own(
        "ignore",
        _Parser(_choice("ignore", "replace", "drain"), "ignore|replace|drain"),
        "What a rebalance recommendation of a spot machine does.",
    )
    aws_mutating_qps: float = _own(
        5.0, _RATE, "Calls a second of each AWS service that change something; 0 is no limit."
    )
    aws_mutating_burst: int = _own(50, _BURST, "Calls at once of each AWS service that change something.")
    aws_describing_qps: float = _own(20.0, _RATE, "Calls a second of each AWS service that read; 0 is no limit.")
    aws_describing_burst: int = _own(100, _BURST, "Calls at once of each AWS service that read.")
    template_retention: timedelta = _own(
        timedelta(hours=24), _POSITIVE_DURATION, "A launch template that was not used for this long is deleted."
    )
    check_state: bool = _own(
        False,
        _BOOLEAN,
        "Rebuild the cluster state after every event and log where it differs; slow, for finding a defect.",
    )
    log_format: str = _own("json", _Parser(_choice("json", "text"), "json|text"), "Form of the log lines.")

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
            f"--{_flag(name)} is accepted and has no effect"
            for name, setting in _settings().items()
            if not setting.metadata["effect"] and getattr(self, name) != setting.default
        ]
        for flag, gates, known in (
            (
                "--feature-gates",
                self.feature_gates,
                {name: attribute for name, attribute in _GATES.items() if attribute in _GATES_WITHOUT_EFFECT},
            ),
            ("--aws-feature-gates", self.aws_feature_gates, _AWS_GATES),
        ):
            said += [
                f"{flag}: {name}=true is accepted and has no effect: the feature is not available in this version"
                for name, attribute in sorted(known.items())
                if getattr(gates, attribute)
            ]
            said += [f"{flag}: {name} is not a gate of this version and has no effect" for name in gates.unknown]
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
            raise OptionsError("--cluster-name (or CLUSTER_NAME) must be given with --provider=aws")
        if self.batch_idle_duration > self.batch_max_duration:
            raise OptionsError("--batch-idle-duration must not be longer than --batch-max-duration")
        ports = [("--metrics-port", self.metrics_port), ("--report-port", self.report_port)]
        for index, (flag, port) in enumerate(ports):
            for other, taken in (*ports[index + 1 :], ("--health-probe-port", self.health_probe_port)):
                if port and port == taken:
                    raise OptionsError(f"{flag} and {other} are both {port}; give each its own port")


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
    lines = ["Flags, and the environment variables in their place:", ""]
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


def _flags(argv: Sequence[str]) -> list[tuple[str, str, str]]:
    """(setting, text, flag as it was given) of each flag, in order."""
    settings = _settings()
    found: list[tuple[str, str, str]] = []
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if word in ("--help", "-h", "-help"):
            raise HelpRequested(usage())
        if not word.startswith("-") or not word.strip("-"):
            raise OptionsError(f"{word!r} is no flag; flags begin with --")
        flag, equals, text = word.lstrip("-").partition("=")
        name, negated = flag.replace("-", "_"), False
        if name not in settings and name.startswith("no_") and isinstance(_default(name[3:]), bool):
            name, negated = name[3:], True
        if name not in settings:
            close = difflib.get_close_matches(flag, [_flag(known) for known in settings], 1)
            raise OptionsError(
                f"unknown flag --{flag}" + (f"; did you mean --{close[0]}?" if close else "; --help lists them all")
            )
        switch = isinstance(settings[name].default, bool)
        if not equals:
            if switch:
                text = "true"
            elif rest and (not rest[0].startswith("--") or rest[0] == "--"):
                text = rest.pop(0)
            else:
                raise OptionsError(f"flag --{flag} needs a value")
        if negated:
            text = "false" if _read(name, text, f"flag --{flag}") else "true"
        found.append((name, text, f"--{flag}"))
    return found


def _default(name: str) -> object:
    setting = _settings().get(name)
    return None if setting is None else setting.default
