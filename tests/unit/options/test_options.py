import json
from datetime import timedelta

import pytest

from provisioner.options import (
    AwsFeatureGates,
    FeatureGates,
    HelpRequested,
    Options,
    OptionsError,
    SpreadDefault,
    TimeLimits,
    usage,
)


def test_without_anything_the_defaults_are_karpenters() -> None:
    options = Options.parse([], {})
    assert options == Options()
    assert (options.metrics_port, options.health_probe_port) == (8080, 8081)
    assert (options.kube_client_qps, options.kube_client_burst) == (200, 300)
    assert (options.batch_idle_duration, options.batch_max_duration) == (timedelta(seconds=1), timedelta(seconds=10))
    assert (options.preference_policy, options.min_values_policy) == ("Respect", "Strict")
    assert options.feature_gates == FeatureGates(reserved_capacity=True)
    assert (options.leader_election_name, options.cpu_requests, options.memory_limit) == (
        "karpenter-leader-election",
        1000,
        -1,
    )
    assert options.nominate == "auto"


FORMS = {
    "a flag with an equals sign": (["--metrics-port=9"], {}, "metrics_port", 9),
    "a flag and its value": (["--metrics-port", "9"], {}, "metrics_port", 9),
    "one dash, as Go allows": (["-metrics-port=9"], {}, "metrics_port", 9),
    "a variable": ([], {"METRICS_PORT": "9"}, "metrics_port", 9),
    "a flag over a variable": (["--metrics-port=9"], {"METRICS_PORT": "10"}, "metrics_port", 9),
    "the last of two flags": (["--metrics-port=9", "--metrics-port=10"], {}, "metrics_port", 10),
    "an empty variable is none": ([], {"METRICS_PORT": ""}, "metrics_port", 8080),
    "a negative number": (["--memory-limit", "-1"], {}, "memory_limit", -1),
    "a switch alone": (["--enable-profiling"], {}, "enable_profiling", True),
    "a switch with a value": (["--ignore-dra-requests=false"], {}, "ignore_dra_requests", False),
    "a switch does not eat the next flag": (["--enable-profiling", "--metrics-port=9"], {}, "metrics_port", 9),
    "a switch turned off by its name": (
        ["--no-disable-leader-election"],
        {"DISABLE_LEADER_ELECTION": "true"},
        "disable_leader_election",
        False,
    ),
    "nominations may be left to the extender": (["--nominate", "false"], {}, "nominate", "false"),
    "a switch of Go's forms": ([], {"ENABLE_PROFILING": "T"}, "enable_profiling", True),
    "our own variable has our name": ([], {"DOVETAIL_PROVIDER": "kwok"}, "provider", "kwok"),
    "a stranger's variable is not ours": ([], {"PROVIDER": "gcp", "NOMINATE": "maybe"}, "nominate", "auto"),
    "the catalogue's variable is Karpenter's": (
        [],
        {"INSTANCE_TYPES_FILE_PATH": "/x.json"},
        "instance_types_file_path",
        "/x.json",
    ),
    "a compound duration": (["--batch-max-duration=1m30.5s"], {}, "batch_max_duration", timedelta(seconds=90.5)),
    "milliseconds": (["--batch-idle-duration=50ms"], {}, "batch_idle_duration", timedelta(milliseconds=50)),
    "no time at all": (["--drain-timeout=0"], {}, "drain_timeout", timedelta(0)),
    "timeouts": (
        ["--timeouts=launch=7m, hold=1m30s"],
        {},
        "timeouts",
        TimeLimits(launch=timedelta(minutes=7), hold=timedelta(seconds=90)),
    ),
    "timeouts as a variable": ([], {"DOVETAIL_TIMEOUTS": "plan=1h"}, "timeouts", TimeLimits(plan=timedelta(hours=1))),
    "no rate limit": (["--kube-client-qps=0"], {}, "kube_client_qps", 0.0),
    "log paths": (["--log-output-paths=stdout,/var/log/x"], {}, "log_output_paths", ("stdout", "/var/log/x")),
    "gates": (
        ["--feature-gates=NodeRepair=true, ReservedCapacity=false"],
        {},
        "feature_gates",
        FeatureGates(node_repair=True, reserved_capacity=False),
    ),
    "a gate of another version": (["--feature-gates=New=true"], {}, "feature_gates", FeatureGates(unknown=("New",))),
    "an address": (["--report-address=10.0.0.7:8444"], {}, "report_address", "10.0.0.7:8444"),
    "a scheduler configuration": (
        [
            '--scheduler-config={"podTopologySpread":{"defaultConstraints":[{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"ScheduleAnyway"}]}}'
        ],
        {},
        "scheduler_config",
        (SpreadDefault(1, "zone", "ScheduleAnyway"),),
    ),
    "a provider": (["--provider=aws", "--cluster-name=blue"], {}, "provider", "aws"),
    "a region as every SDK is told it": ([], {"AWS_REGION": "eu-west-1"}, "aws_region", "eu-west-1"),
    "the cluster's name is Karpenter's": ([], {"CLUSTER_NAME": "blue"}, "cluster_name", "blue"),
    "an endpoint": ([], {"CLUSTER_ENDPOINT": "https://a.b:443"}, "cluster_endpoint", "https://a.b:443"),
    "a memory overhead": ([], {"VM_MEMORY_OVERHEAD_PERCENT": "0.1"}, "vm_memory_overhead_percent", 0.1),
    "a rarer refresh": (["--ami-refresh-interval=5m"], {}, "ami_refresh_interval", timedelta(minutes=5)),
    "gates of AWS": (
        ["--aws-feature-gates=NodeClassCEL=true,Other=false"],
        {},
        "aws_feature_gates",
        AwsFeatureGates(nodeclass_cel=True, unknown=("Other",)),
    ),
    "a debug mode": (["--check-state=true"], {}, "check_state", True),
    "an own setting of AWS": ([], {"DOVETAIL_REBALANCE": "drain"}, "rebalance", "drain"),
    "an empty scheduler configuration": (["--scheduler-config={}"], {}, "scheduler_config", ()),
}


@pytest.mark.parametrize(("argv", "env", "name", "want"), FORMS.values(), ids=FORMS)
def test_forms(argv: list[str], env: dict[str, str], name: str, want: object) -> None:
    assert getattr(Options.parse(argv, env), name) == want


def constraints(*given: dict[str, object]) -> list[str]:
    """A flag with these default constraints; what they leave out is usual."""
    usual = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    found = {"podTopologySpread": {"defaultConstraints": [{**usual, **one} for one in given]}}
    return [f"--scheduler-config={json.dumps(found)}"]


SPREAD = {
    "what kube-scheduler takes besides": (
        constraints({"minDomains": 2, "nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor"}),
        SpreadDefault(1, "zone", "DoNotSchedule", 2, "Ignore", "Honor"),
    ),
    "what is to be empty": (
        constraints({"labelSelector": None, "matchLabelKeys": []}),
        SpreadDefault(1, "zone", "DoNotSchedule", match_label_keys=()),
    ),
    "a label of a domain": (
        constraints({"topologyKey": "topology.kubernetes.io/zone"}),
        SpreadDefault(1, "topology.kubernetes.io/zone", "DoNotSchedule"),
    ),
}


@pytest.mark.parametrize(("argv", "want"), SPREAD.values(), ids=SPREAD)
def test_default_constraints(argv: list[str], want: SpreadDefault) -> None:
    assert Options.parse(argv, {}).scheduler_config == (want,)


def test_one_key_may_be_wished_and_required() -> None:
    argv = constraints({}, {"whenUnsatisfiable": "ScheduleAnyway"})
    assert len(Options.parse(argv, {}).scheduler_config) == 2


WRONG = {
    "two equal default constraints": (
        constraints({}, {"maxSkew": 2}),
        {},
        "flag --scheduler-config must have one default constraint for topologyKey zone and whenUnsatisfiable DoNotSchedule",
    ),
    "a default constraint over what is no label": (
        constraints({"topologyKey": "a b"}),
        {},
        "flag --scheduler-config must name a label in each topologyKey ('a b' is no label)",
    ),
    "a default constraint with a selector": (
        constraints({"labelSelector": {}}),
        {},
        "flag --scheduler-config must be a scheduler configuration",
    ),
    "a default constraint with keys": (
        constraints({"matchLabelKeys": ["a"]}),
        {},
        "flag --scheduler-config must be a scheduler configuration",
    ),
    "a default constraint with a policy that is none": (
        constraints({"nodeTaintsPolicy": "honor"}),
        {},
        "flag --scheduler-config must be a scheduler configuration",
    ),
    "a flag that does not exist": (["--metrics-prt=1"], {}, "unknown flag --metrics-prt; did you mean --metrics-port?"),
    "a flag like no other": (["--zzz"], {}, "unknown flag --zzz; --help lists all flags"),
    "a word that is no flag": (["run"], {}, "'run' is not a flag; flags begin with --"),
    "a flag without its value": (["--metrics-port"], {}, "flag --metrics-port requires a value"),
    "a flag followed by a flag": (["--metrics-port", "--enable-profiling"], {}, "flag --metrics-port requires a value"),
    "a word for a port": (["--metrics-port=http"], {}, "flag --metrics-port must be a whole number, not 'http'"),
    "a port out of range": (["--metrics-port=65536"], {}, "flag --metrics-port must be from 0 to 65535, not '65536'"),
    "a variable is named as such": (
        [],
        {"METRICS_PORT": "x"},
        "environment variable METRICS_PORT must be a whole number, not 'x'",
    ),
    "a duration without unit": (
        ["--batch-idle-duration=5"],
        {},
        "flag --batch-idle-duration must be a duration such as",
    ),
    "a duration that Go cannot hold": (
        ["--batch-max-duration=3000000h"],
        {},
        "flag --batch-max-duration must be a duration such as",
    ),
    "a negative duration": (["--batch-idle-duration=-5s"], {}, "flag --batch-idle-duration must be a duration such as"),
    "an empty batch": (["--batch-idle-duration=0s"], {}, "flag --batch-idle-duration must be longer than 0, not '0s'"),
    "an idle time over the maximum": (
        ["--batch-idle-duration=11s"],
        {},
        "--batch-idle-duration must not be longer than --batch-max-duration",
    ),
    "half a switch": (["--enable-profiling=yes"], {}, "flag --enable-profiling must be true or false, not 'yes'"),
    "a policy that does not exist": (
        ["--preference-policy=ignore"],
        {},
        "flag --preference-policy must be one of Respect, Ignore, not 'ignore'",
    ),
    "a provider that is not built in": (["--provider=gcp"], {}, "flag --provider must be one of aws, kwok"),
    "AWS without a cluster": (["--provider=aws"], {}, "--cluster-name (or CLUSTER_NAME) is required"),
    "an endpoint that is a host": (
        ["--cluster-endpoint=a.b"],
        {},
        "flag --cluster-endpoint must be a complete URL such as https://host:443, not 'a.b'",
    ),
    "a CA that is no base64": (["--cluster-ca-bundle=!"], {}, "flag --cluster-ca-bundle must be a CA bundle in base64"),
    "a memory overhead in percent": (
        ["--vm-memory-overhead-percent=7.5"],
        {},
        "flag --vm-memory-overhead-percent must be at least 0 and less than 1",
    ),
    "a refresh at every second": (
        ["--subnet-refresh-interval=1s"],
        {},
        "flag --subnet-refresh-interval must be 1m or longer",
    ),
    "fewer network interfaces than none": (["--reserved-enis=-1"], {}, "flag --reserved-enis must be 0 or more"),
    "a rate below nothing": (["--max-usd-per-hour=-1"], {}, "flag --max-usd-per-hour must be 0 or more"),
    "a timeout that does not exist": (
        ["--timeouts=lunch=5m"],
        {},
        "flag --timeouts must only set solve, hold, plan, launch, registration and command ('lunch' is unknown), not 'lunch=5m'",
    ),
    "a timeout without unit": (
        [],
        {"DOVETAIL_TIMEOUTS": "hold=5"},
        "must set hold to a duration longer than 0 such as",
    ),
    "a timeout of nothing": (["--timeouts=plan=0s"], {}, "must set plan to a duration longer than 0 such as"),
    "a timeout without a value": (["--timeouts=launch"], {}, "with a value for 'launch', not 'launch'"),
    "a gate without a value": (["--feature-gates=NodeRepair"], {}, "with a value for 'NodeRepair', not"),
    "a gate with another value": (
        ["--feature-gates=NodeRepair=on"],
        {},
        "must set feature gate NodeRepair to true or false, not 'NodeRepair=on'",
    ),
    "a scheduler configuration that is not valid YAML": (
        ["--scheduler-config={"],
        {},
        "flag --scheduler-config must be a scheduler configuration in YAML or JSON",
    ),
    "a scheduler configuration with more": (
        ["--scheduler-config={a: 1}"],
        {},
        "Object contains unknown field `a`",
    ),
    "a default constraint without skew": (
        ["--scheduler-config={podTopologySpread: {defaultConstraints: [{topologyKey: z}]}}"],
        {},
        "Object missing required field `maxSkew` - at `$.podTopologySpread.defaultConstraints[0]`",
    ),
    "two servers on one port": (
        ["--metrics-port=9", "--health-probe-port=9"],
        {},
        "--metrics-port and --health-probe-port are both set to 9",
    ),
    "a host name to listen on": (
        ["--bind-address=localhost"],
        {},
        "flag --bind-address must be an IP address of this host",
    ),
    "an address without port": (["--report-address=10.0.0.7"], {}, "flag --report-address must be host:port"),
    "a burst of nothing": (["--kube-client-burst=0"], {}, "flag --kube-client-burst must be 1 or more, not '0'"),
    "a rate that is no number": (["--kube-client-qps=nan"], {}, "flag --kube-client-qps must be a number, not 'nan'"),
}


@pytest.mark.parametrize(("argv", "env", "message"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named(argv: list[str], env: dict[str, str], message: str) -> None:
    with pytest.raises(OptionsError) as raised:
        Options.parse(argv, env)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_help_lists_every_flag_with_its_variable() -> None:
    with pytest.raises(HelpRequested) as raised:
        Options.parse(["--metrics-port=9", "--help"], {})
    assert str(raised.value) == usage()
    for flag, variable in (
        ("--batch-max-duration DURATION", "$BATCH_MAX_DURATION"),
        ("--nominate true|false|auto", "$DOVETAIL_NOMINATE"),
    ):
        assert f"{flag}   {variable}" in usage()


def test_the_lease_lives_in_the_system_namespace_unless_said_otherwise() -> None:
    assert Options.parse(["--system-namespace=x"], {}).lease_namespace == "x"
    assert Options.parse(["--system-namespace=x", "--leader-election-namespace=y"], {}).lease_namespace == "y"


WORKERS = {
    "one core": (1000, 10),
    "nothing asked counts as one core": (0, 10),
    "thirty cores": (30_000, 496),
    "sixty cores": (60_000, 1000),
    "more than sixty": (200_000, 1000),
}


@pytest.mark.parametrize(("millis", "want"), WORKERS.values(), ids=WORKERS)
def test_workers_grow_with_the_cpu_request(millis: int, want: int) -> None:
    assert Options(cpu_requests=millis).workers(10, 1000) == want
