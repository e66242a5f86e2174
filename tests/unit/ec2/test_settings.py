"""What flags make of the settings of AWS."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from provisioner.ec2.access.client import DESCRIBING, MUTATING, CallRate
from provisioner.ec2.settings import AwsSettings
from provisioner.options import AwsFeatureGates, Options

HOUR = timedelta(hours=1)
SETTINGS: dict[str, tuple[str, str, Any]] = {
    "cluster-name": ("x", "cluster_name", "x"),
    "cluster-endpoint": ("https://h:1", "cluster_endpoint", "https://h:1"),
    "cluster-ca-bundle": ("YQ==", "cluster_ca_bundle", "YQ=="),
    "isolated-vpc": ("true", "isolated_vpc", True),
    "eks-control-plane": ("true", "eks_control_plane", True),
    "vm-memory-overhead-percent": ("0.1", "vm_memory_overhead", 0.1),
    "interruption-queue": ("q", "interruption_queue", "q"),
    "reserved-enis": ("1", "reserved_enis", 1),
    "disable-dry-run": ("true", "dry_run_validation", False),
    "enable-zonal-shift": ("true", "enable_zonal_shift", True),
    "translate-provisioners": ("true", "translate_provisioners", True),
    "ami-refresh-interval": ("1h", "ami_refresh", HOUR),
    "subnet-refresh-interval": ("1h", "subnet_refresh", HOUR),
    "security-group-refresh-interval": ("1h", "security_group_refresh", HOUR),
    "aws-feature-gates": ("NodeClassCEL=true", "gates", AwsFeatureGates(nodeclass_cel=True)),
    "system-namespace": ("ns", "system_namespace", "ns"),
    "discounts": ("configmap/d", "discounts", "configmap/d"),
    "rebalance": ("drain", "rebalance", "drain"),
}
RATES = {
    MUTATING: (CallRate(5, 50), CallRate(7, 8)),
    DESCRIBING: (CallRate(20, 100), CallRate(9, 10)),
}
"""Kind of calls to its usual rate, and to another one."""


def settings(*flags: str) -> AwsSettings:
    return AwsSettings.of(Options.parse(["--provider=aws", "--cluster-name=c", *flags], {}), "eu-west-1")


@pytest.mark.parametrize("flag", SETTINGS)
def test_a_flag_is_a_setting(flag: str) -> None:
    text, name, value = SETTINGS[flag]
    assert getattr(settings(), name) != value
    assert getattr(settings(f"--{flag}={text}"), name) == value


@pytest.mark.parametrize("kind", RATES)
def test_rates_reach_the_policy_of_calls(kind: str) -> None:
    usual, other = RATES[kind]
    assert settings().policy().rates[kind] == usual
    assert replace(settings(), rates={kind: other}).policy().rates[kind] == other


def test_what_is_no_flag() -> None:
    found = settings()
    assert (found.spot_refresh, found.price_refresh) == (timedelta(minutes=10), timedelta(hours=12))
    assert found.template_retention == timedelta(days=1)
