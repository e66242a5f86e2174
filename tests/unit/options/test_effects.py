"""Every setting does something that a test sees, or is said to do nothing."""

import ast
import functools
import itertools
import re
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path

import click
import pytest

from provisioner.options import AwsFeatureGates, FeatureGates, Options, TimeLimits, command
from webhook.server import command as webhook

ROOT = Path(__file__).parents[3]
_UNIT, _AWS, _WIRED = "tests/unit/", "tests/unit/ec2/", "tests/integration/test_options.py"
_PROGRAM = f"{_WIRED}::test_ports_lease_logs_and_profiling_follow_their_flags"
_SETTING = f"{_AWS}test_settings.py::test_a_flag_is_a_setting"
_POLICIES = f"{_UNIT}provisioning/test_provisioner.py"

_PROGRAM_SETTINGS = """metrics_port health_probe_port enable_profiling leader_election_name leader_election_namespace
memory_limit log_output_paths log_format bind_address kubeconfig report_port"""
_AWS_SETTINGS = """cluster_name cluster_endpoint cluster_ca_bundle isolated_vpc eks_control_plane provider
vm_memory_overhead_percent interruption_queue reserved_enis disable_dry_run enable_zonal_shift translate_provisioners
aws_feature_gates ami_refresh_interval subnet_refresh_interval security_group_refresh_interval system_namespace discounts rebalance"""
_OBSERVED = "disable_cluster_state_observability disable_leader_election log_level"

SEEN: dict[str, str] = {
    **dict.fromkeys(_PROGRAM_SETTINGS.split(), _PROGRAM),
    **dict.fromkeys(_OBSERVED.split(), f"{_WIRED}::test_one_observability_flag_leaves_single_objects_out"),
    **dict.fromkeys(_AWS_SETTINGS.split(), _SETTING),
    "karpenter_namespace": f"{_UNIT}operator/test_other_autoscalers.py::test_a_karpenter_elsewhere_counts_where_the_flag_says_so",
    **dict.fromkeys(
        ("preference_policy", "min_values_policy", "ignore_dra_requests", "scheduler_config", "feature_gates"),
        f"{_UNIT}provisioning/test_provisioner.py::test_flags_become_policies",
    ),
    **dict.fromkeys(
        ("kube_client_qps", "kube_client_burst"),
        f"{_UNIT}kube/test_limits.py::test_a_burst_goes_at_once_and_the_rest_at_the_rate",
    ),
    "batch_idle_duration": f"{_UNIT}provisioning/test_batcher.py::test_a_window_closes_a_second_after_its_last_new_member",
    "batch_max_duration": f"{_UNIT}provisioning/test_batcher.py::test_a_window_is_never_open_longer_than_its_longest",
    "report_address": f"{_WIRED}::test_the_address_of_reports_is_on_the_lease",
    "packing": f"{_POLICIES}::test_an_annotation_of_a_pool_says_how_its_nodes_are_chosen",
    "cpu_requests": f"{_UNIT}options/test_options.py::test_workers_grow_with_the_cpu_request",
    "instance_types_file_path": f"{_UNIT}test_clouds.py::test_the_catalogue_is_the_built_in_one_unless_a_file_is_named",
    "timeouts": f"{_UNIT}operator/test_term.py::test_a_flag_reaches_its_part",
    **dict.fromkeys(
        ("max_claims_per_minute", "max_usd_per_hour"),
        f"{_UNIT}nodeclaims/test_growth_ledger.py::test_flags_become_limits",
    ),
    "repair_timeout": f"{_UNIT}disruption/forceful/test_controller.py::test_flags_become_repair_policies",
    **dict.fromkeys(
        ("history_bytes", "history_duration", "legacy_node_repair", "repair_breaker"),
        f"{_UNIT}operator/test_term.py::test_a_flag_reaches_its_part",
    ),
    "provisioning_classes": f"{_UNIT}operator/test_term.py::test_requests_have_a_controller_where_a_class_is_ours",
    "max_disrupting_nodes": f"{_UNIT}disruption/test_budgets.py::test_a_limit_over_all_pools_holds_beside_their_budgets",
    "consolidation": f"{_UNIT}disruption/test_consolidation_state.py::test_flags_become_settings",
    "mass_deletion_guard": f"{_UNIT}termination/test_deletion_guards.py::test_more_than_the_share_of_a_cascade_waits_all_of_it",
    "drain_timeout": f"{_UNIT}lifecycle/test_controller.py::test_flags_become_timeouts",
    "vpa_predictions": "tests/integration/test_vpa_predictions.py::test_the_replacement_takes_the_pods_as_they_come_back",
    "check_state": "tests/property/test_state_laws.py::test_a_difference_is_told",
    "nominate": f"{_UNIT}lifecycle/test_steering.py::test_a_fixed_answer_stays",
    "aws_region": f"{_UNIT}ec2/test_cloud.py::test_the_region_is_that_of_every_sdk",
    "report_cert_dir": f"{_UNIT}operator/test_report_certificates.py::test_a_directory_that_does_not_exist_is_a_mistake_not_an_empty_one",
    "why_port": "tests/integration/test_why_leader.py::test_the_leader_answers_and_the_other_replica_names_it",
}
"""Setting to the test, as path::name, that sees its effect."""

_WIRING = f"{_UNIT}operator/test_term.py::test_a_flag_reaches_its_part"
_WIRED_SETTINGS = (
    """batch_idle_duration batch_max_duration check_state feature_gates max_disrupting_nodes nominate report_cert_dir"""
)
SET: dict[str, str] = {
    **dict.fromkeys(_WIRED_SETTINGS.split(), _WIRING),
    **dict.fromkeys(
        ("kube_client_qps", "kube_client_burst"),
        f"{_UNIT}operator/test_main.py::test_its_requests_are_limited_as_its_flags_say",
    ),
    "mass_deletion_guard": f"{_UNIT}operator/test_term.py::test_a_flag_reaches_its_part",
    "aws_region": f"{_UNIT}ec2/test_cloud.py::test_a_region_that_is_named_is_the_one",
    "image_ecr_accounts": f"{_UNIT}webhook/test_server.py::test_accounts_alone_switch_lookups_on",
}
"""Where the effect is seen of a part alone: setting to the test that sets it and sees that it reaches that part."""

_CLAIMS = f"{_UNIT}lifecycle/test_controller.py"
TIMEOUTS: dict[str, str] = {
    "solve": f"{_UNIT}provisioning/test_solve_deadline.py::test_the_rest_of_a_batch_is_planned_next",
    "hold": f"{_UNIT}state/test_plans.py::test_an_assignment_ends_two_minutes_after_its_node_is_ready",
    "plan": f"{_UNIT}state/test_plans.py::test_an_assignment_ends_a_quarter_of_an_hour_after_it_was_made_where_its_node_never_gets_ready",
    "command": f"{_WIRED.replace('test_options', 'test_disruption_commands')}::test_a_replacement_that_never_registers_is_given_up_and_its_node_takes_pods_again",
    **dict.fromkeys(("launch", "registration"), f"{_CLAIMS}::test_flags_become_timeouts"),
}
"""Part of --timeouts to the test that sees its effect; that each reaches its part is seen by `_WIRING`."""

_IMAGES = f"{_UNIT}webhook/images/test_trust.py"
_LOOKED_UP = "tests/integration/test_image_architectures.py::test_the_first_pod_is_told_and_the_next_is_stamped"
WEBHOOK: dict[str, str] = {
    "on_demand_shares": "tests/integration/test_on_demand_shares.py::test_a_share_holds_over_a_burst_evictions_and_a_scale_down",
    **dict.fromkeys(("image_registries", "image_registry_networks", "image_registry_ca"), _LOOKED_UP),
    "image_ecr_accounts": f"{_IMAGES}::test_our_role_is_for_listed_accounts_alone",
}
"""The flags of the webhook that switch something on."""


def test_every_switch_of_the_webhook_has_a_test_that_sees_its_effect_and_is_off_by_default() -> None:
    values = webhook.make_context("webhook", []).params
    switches = {
        name: value for name, value in values.items() if name.startswith("image_") or name == "on_demand_shares"
    }
    assert switches.keys() == WEBHOOK.keys()
    assert not any(switches.values())


def settings() -> set[str]:
    return {one.name for one in fields(Options) if one.metadata}


def test_every_setting_has_a_test_that_sees_its_effect_or_is_told_to_have_none() -> None:
    assert settings() - SEEN.keys() == set()
    assert SEEN.keys() - settings() == set()
    assert {one.name for one in fields(TimeLimits) if one.compare} == TIMEOUTS.keys()


@pytest.mark.parametrize("part", TIMEOUTS)
def test_a_test_sets_each_timeout(part: str) -> None:
    texts = {node.value for one in used_by(_WIRING) for node in ast.walk(one) if isinstance(node, ast.Constant)}
    assert any(str(text).startswith(f"--timeouts={part}=") for text in texts)


@functools.cache
def used_by(where: str) -> tuple[ast.AST, ...]:
    """A test, and what of its module it uses in turn: fixtures, tables, helpers. Empty where there is no such test."""
    path, _, name = where.partition("::")
    there: dict[str, ast.AST] = {}
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            there[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            tables = node.targets if isinstance(node, ast.Assign) else [node.target]
            there.update({one.id: node for one in tables if isinstance(one, ast.Name)})
    found: dict[str, ast.AST] = {}
    wanted = [name]
    while wanted:
        one = wanted.pop()
        if one in there and one not in found:
            found[one] = there[one]
            wanted += [node.id for node in ast.walk(there[one]) if isinstance(node, ast.Name)]
            wanted += [node.arg for node in ast.walk(there[one]) if isinstance(node, ast.arg)]
    return tuple(found.values())


def is_set_in(setting: str, where: str) -> bool:
    """Whether a test, or what it uses, has the setting's flag in a text, or gives it by name."""
    flag = setting.replace("_", "-")
    in_text = re.compile(rf"(?<![\w-])--{flag}(?![\w-])")
    for node in itertools.chain.from_iterable(map(ast.walk, used_by(where))):
        match node:
            case ast.Constant(value=str(text)) if in_text.search(text) or text in (flag, setting):
                return True
            case ast.keyword(arg=name) if name == setting:
                return True
    return False


@pytest.mark.parametrize("where", sorted({*SEEN.values(), *SET.values(), *WEBHOOK.values(), *TIMEOUTS.values()}))
def test_the_test_is_there(where: str) -> None:
    assert used_by(where)


@pytest.mark.parametrize("setting", sorted(SEEN.keys() | WEBHOOK.keys()))
def test_a_test_sets_what_it_is_named_for(setting: str) -> None:
    """The one that sees the effect, or else one that sees the setting reach the part whose effect is seen."""
    seen = SEEN.get(setting) or WEBHOOK[setting]
    assert is_set_in(setting, seen) is not (setting in SET)
    assert is_set_in(setting, SET.get(setting, seen))


def test_every_setting_with_an_effect_is_read_by_the_program() -> None:
    read: set[str] = set()
    for path in (ROOT / "provisioner").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith(("options", "self")):
                read.add(node.attr)
    assert settings() - read == set()


NOTHING = {
    "a setting": (["--karpenter-service=x"], ["--karpenter-service is accepted but has no effect"]),
    "the default of one": (["--karpenter-service="], []),
    "a switch": (["--no-disable-controller-warmup"], ["--disable-controller-warmup is accepted but has no effect"]),
    "defaults that Karpenter's chart sets": (["--disable-controller-warmup", "--log-error-output-paths=stderr"], []),
    "another place for errors of the logger": (
        ["--log-error-output-paths=/dev/null"],
        ["--log-error-output-paths is accepted but has no effect"],
    ),
    "a timeout that --timeouts sets, too: what counts is named": (
        ["--launch-timeout=5m", "--timeouts=launch=7m"],
        ["--launch-timeout is deprecated and will be removed in the next release; set --timeouts=launch=420s instead"],
    ),
    "a gate": (
        ["--feature-gates=CapacityBuffer=true,ReservedCapacity=false"],
        [],
    ),
    "a gate of another version": (
        ["--feature-gates=Teleport=true"],
        ["--feature-gates: Teleport is not a feature gate of this version and has no effect"],
    ),
    "a gate of AWS": (["--aws-feature-gates=NodeClassCEL=true"], []),
    "gates of DRA": (
        ["--aws-feature-gates=DRANVIDIAGPU=true,DRAEFA=true"],
        [
            f"--aws-feature-gates: {name}=true is accepted but has no effect because nodes for pods with DRA resource claims are not planned in this version"
            for name in ("DRANVIDIAGPU", "DRAEFA")
        ],
    ),
}


@pytest.mark.parametrize("case", NOTHING.values(), ids=NOTHING)
def test_what_has_no_effect_is_said(case: tuple[list[str], list[str]]) -> None:
    flags, said = case
    assert list(Options.parse(flags, {}).without_effect()) == said


GOING: dict[str, tuple[str, str]] = {
    "hold-ttl": ("7s", "set --timeouts=hold=7s instead"),
    "plan-ttl": ("7m", "set --timeouts=plan=420s instead"),
    "command-timeout": ("7s", "set --timeouts=command=7s instead"),
    "launch-timeout": ("7s", "set --timeouts=launch=7s instead"),
    "registration-timeout": ("7s", "set --timeouts=registration=7s instead"),
    "solve-deadline": ("500ms", "set --timeouts=solve=0.5s instead"),
    "report-bind-address": ("127.0.0.1", "set --bind-address instead"),
    "report-client-name": ("blue", "dovetail-scheduler"),
    "spot-refresh-interval": ("1h", "every 10 minutes"),
    "price-refresh-interval": ("1h", "every 12 hours"),
    "aws-mutating-qps": ("7", "5 per second"),
    "aws-mutating-burst": ("7", "up to 50"),
    "aws-describing-qps": ("7", "20 per second"),
    "aws-describing-burst": ("7", "up to 100"),
    "template-retention": ("1h", "after 24 hours"),
    "prefix-delegation": ("true", "the aws-node DaemonSet"),
    "hostname-spread-domains": ("7", "dovetail.dev/hostname-domains"),
    "intake-grace": ("7s", "300 ms"),
}
"""Settings that the next release removes: a value, and what the log names in their place."""


@pytest.mark.parametrize("flag", GOING)
def test_a_setting_that_goes_is_accepted_and_its_replacement_is_named_once(flag: str) -> None:
    value, instead = GOING[flag]
    variable = f"DOVETAIL_{flag.replace('-', '_').upper()}"
    for name, options in (
        (f"--{flag}", Options.parse([f"--{flag}={value}"], {})),
        (variable, Options.parse([], {variable: value})),
    ):
        (said,) = options.without_effect()
        assert said.startswith(f"{name} ")
        assert said.endswith(instead) or "has no effect" in said
        assert instead in said


def test_a_setting_that_was_folded_takes_effect_and_one_that_was_removed_does_nothing() -> None:
    for flag, (value, instead) in GOING.items():
        options = replace(Options.parse([f"--{flag}={value}"], {}), farewells=())
        if "--timeouts=" in instead:
            asked = instead.removeprefix("set --timeouts=").removesuffix(" instead")
            assert options == Options(timeouts=TimeLimits.parse(asked)) != Options()
        elif flag == "report-bind-address":
            assert options == Options(report_bind_address=value)
        else:
            assert options == Options(), flag


def test_what_replaces_a_setting_is_stronger() -> None:
    options = Options.parse(["--hold-ttl=7s", "--plan-ttl=7s", "--timeouts=hold=9s"], {})
    assert options.timeouts == TimeLimits(hold=timedelta(seconds=9), plan=timedelta(seconds=7))
    usual = Options.parse(["--hold-ttl=7s", "--timeouts=hold=2m"], {})
    assert usual.timeouts.hold == timedelta(minutes=2), "named, though it is the default"


def test_the_commands_hidden_flags_are_those_that_go_or_mean_nothing() -> None:
    hidden = {one.opts[0][2:] for one in command().params if isinstance(one, click.Option) and one.hidden}
    assert hidden - GOING.keys() == {"karpenter-service", "disable-controller-warmup", "log-error-output-paths"}
    assert GOING.keys() - hidden == set()


def test_every_gate_is_known_to_work_or_not() -> None:
    everything = Options.parse(
        [
            "--feature-gates="
            + ",".join(
                f"{name}=true" for name in str(FeatureGates()).replace("=true", "").replace("=false", "").split(",")
            )
        ],
        {},
    ).feature_gates
    of_aws = AwsFeatureGates.parse(",".join(f"{name}=true" for name in AwsFeatureGates.known()))
    said = Options(feature_gates=everything, aws_feature_gates=of_aws).without_effect()
    every = f"{everything},{of_aws}".replace("=true", "").split(",")
    silent = {name for name in every if not any(name in one for one in said)}
    assert silent == {
        "CapacityBuffer",
        "NodeClassCEL",
        "NodeOverlay",
        "NodeRepair",
        "PodDeletionCostManagement",
        "RebootForRepair",
        "ReservedCapacity",
        "SpotToSpotConsolidation",
        "StaticCapacity",
        "TerminateFirstDrift",
        "TerminateFirstRepair",
    }
