"""The kubelet's fields of a class, judged for a family and a version: one row a rule."""

from typing import Any

import pytest

from provisioner.ec2.nodeclass.kubelet import MANAGED_FIELDS, Findings, check_kubelet, tables

INVALID = "InvalidKubeletConfiguration"
DISABLED = "KubeletExpressionsDisabled"
UNSUPPORTED = "UnsupportedKubeletConfiguration"
SOFT = {"evictionSoft": {"memory.available": "10%"}, "evictionSoftGracePeriod": {"memory.available": "1m30s"}}
MANAGED: dict[str, Any] = {
    "clusterDNS": ["10.0.0.10"],
    "maxPods": 42,
    "systemReserved": {"cpu": "100m", "pid": "100"},
    "kubeReserved": {"memory": "1Gi", "ephemeral-storage": "1Gi"},
    "evictionHard": {"nodefs.available": "10%", "pid.available": "100"},
    **SOFT,
    "evictionMaxPodGracePeriod": 60,
    "imageGCHighThresholdPercent": 85,
    "imageGCLowThresholdPercent": 80,
    "cpuCFSQuota": False,
}

Row = tuple[dict[str, Any], str, tuple[str, ...]]


def row(reason: str, *words: str, **kubelet: Any) -> Row:
    return kubelet, reason, words


ROWS: dict[str, Row] = {
    "nothing": row(""),
    "what every family takes": row("", **MANAGED, podsPerCore=2),
    "a field that there is": row("", containerLogMaxSize="50Mi"),
    "a field that there is not": row(INVALID, "maxPod: unknown to the kubelet of Kubernetes 1.33", maxPod=1),
    "fields are told from each other by case": row(INVALID, "maxpods: unknown", maxpods=1),
    "null is of every type": row("", maxPods=None, clusterDNS=None, evictionHard=None, authentication=None),
    "the object's own type": row("", apiVersion="kubelet.config.k8s.io/v1beta1", kind="KubeletConfiguration"),
    "an unknown field within": row(
        INVALID, "authentication.anonymous.on: unknown", authentication={"anonymous": {"on": True}}
    ),
    "an unknown field within a list": row(
        INVALID, "reservedMemory[1].node: unknown", reservedMemory=[{"numaNode": 0}, {"node": 1}]
    ),
    "a known field within a list": row("", reservedMemory=[{"numaNode": 0, "limits": {"memory": "1Gi"}}]),
    "an amount within that is none": row(
        INVALID, 'reservedMemory[0].limits.memory: "x" is not a quantity', reservedMemory=[{"limits": {"memory": "x"}}]
    ),
    "an amount with a decimal point": row("", reservedMemory=[{"limits": {"memory": 1000.0}}]),
    "our own field": row(INVALID, "registerWithTaints: cannot be set", registerWithTaints=[]),
    "a text for a number": row(INVALID, "podsPerCore: must be an integer, not a string", podsPerCore="2"),
    "a fraction for an integer": row(INVALID, "maxPods: must be an integer, not a number", maxPods=1.5),
    "a switch for an integer": row(INVALID, "maxPods: must be an integer, not a boolean", maxPods=True),
    "an integer beyond 32 bits": row(INVALID, "maxPods: 2147483648 is out of range for int32", maxPods=2**31),
    "a number for a switch": row(INVALID, "cpuCFSQuota: must be a boolean, not an integer", cpuCFSQuota=1),
    "a text for a list": row(INVALID, "clusterDNS: must be a list, not a string", clusterDNS="10.0.0.10"),
    "a number within a list": row(
        INVALID, 'clusterDNS[1]: must be a string, not an integer; write "1" in quotes', clusterDNS=["a", 1]
    ),
    "a list for a map": row(INVALID, "evictionHard: must be an object, not a list", evictionHard=[]),
    "a number within a map": row(
        INVALID, 'kubeReserved.cpu: must be a string, not an integer; write "1" in quotes', kubeReserved={"cpu": 1}
    ),
    "a list within an object": row(
        INVALID, "authentication.x509: must be an object, not a list", authentication={"x509": []}
    ),
    "a duration": row("", syncFrequency="1m"),
    "a duration without unit": row(INVALID, "syncFrequency: '60' is not a duration", syncFrequency="60"),
    "a number for a duration": row(
        INVALID, "syncFrequency: must be a duration such as 30s, not an integer", syncFrequency=60
    ),
    "a number": row("", memoryThrottlingFactor=0.9),
    "a whole number": row("", memoryThrottlingFactor=1),
    "a text for a floating number": row(
        INVALID, "memoryThrottlingFactor: must be a number, not a string", memoryThrottlingFactor="1"
    ),
    "a text of a named type": row("", configMapAndSecretChangeDetectionStrategy="Watch"),
    "a number for a text of a named type": row(
        INVALID,
        "configMapAndSecretChangeDetectionStrategy: must be a string, not an integer",
        configMapAndSecretChangeDetectionStrategy=1,
    ),
    "logging": row(
        "",
        logging={"format": "json", "verbosity": 2, "flushFrequency": 5, "options": {"json": {"infoBufferSize": "1Ki"}}},
    ),
    "logging with a negative verbosity": row(
        INVALID, "logging.verbosity: -1 is less than the minimum 0", logging={"verbosity": -1}
    ),
    "tracing": row("", tracing={"endpoint": "a", "samplingRatePerMillion": 1}),
    "lists within a map": row("", staticPodURLHeader={"A": ["b"]}),
    "switches within a map": row(
        INVALID, "featureGates.A: must be a boolean, not a string", featureGates={"A": "true"}
    ),
    # --- eviction
    "an unknown signal": row(INVALID, "evictionHard[memory]: the signal must be one of", evictionHard={"memory": "5%"}),
    "a threshold of 0 %": row("", evictionHard={"memory.available": "0%"}),
    "a threshold of a fraction of a percent": row("", evictionHard={"memory.available": "2.5%"}),
    "a threshold beyond 100 %": row(INVALID, "101% is not a percentage", evictionHard={"memory.available": "101%"}),
    "a threshold below 0 %": row(INVALID, "-1% is not a percentage", evictionHard={"memory.available": "-1%"}),
    "a threshold of no number": row(INVALID, "x% is not a percentage", evictionHard={"memory.available": "x%"}),
    "a threshold of nan percent": row(INVALID, "nan% is not a percentage", evictionHard={"memory.available": "nan%"}),
    "a threshold of an amount": row("", evictionMinimumReclaim={"nodefs.inodesFree": "500Mi"}),
    "a threshold of a negative amount": row(INVALID, "-1 is negative", evictionMinimumReclaim={"pid.available": "-1"}),
    "a threshold that is nothing": row(INVALID, "evictionHard[pid.available]", evictionHard={"pid.available": ""}),
    "soft eviction with its period": row("", **SOFT),
    "soft eviction without period": row(
        INVALID,
        "evictionSoft[memory.available]: evictionSoftGracePeriod has no grace period",
        evictionSoft={"memory.available": "5%"},
    ),
    "a period without soft eviction": row(
        INVALID,
        "evictionSoftGracePeriod[pid.available]: evictionSoft has no threshold",
        evictionSoftGracePeriod={"pid.available": "1m"},
    ),
    "a period that is none": row(
        INVALID, "'x' is not a duration", **SOFT | {"evictionSoftGracePeriod": {"memory.available": "x"}}
    ),
    "a negative period": row(
        INVALID, "-1m is negative", **SOFT | {"evictionSoftGracePeriod": {"memory.available": "-1m"}}
    ),
    # --- reserved
    "another resource reserved": row(INVALID, "kubeReserved[gpu]: only cpu, memory,", kubeReserved={"gpu": "1"}),
    "a negative amount reserved": row(INVALID, "systemReserved[cpu]: -1 is negative", systemReserved={"cpu": "-1"}),
    # --- numbers
    "images: above and below": row(
        INVALID,
        "imageGCHighThresholdPercent: 50 must be greater",
        imageGCHighThresholdPercent=50,
        imageGCLowThresholdPercent=50,
    ),
    "images: beyond 100": row(INVALID, "101 is not between 0 and 100", imageGCHighThresholdPercent=101),
    "images: below 0": row(INVALID, "-1 is not between 0 and 100", imageGCLowThresholdPercent=-1),
    "images: one of them alone": row("", imageGCLowThresholdPercent=99),
    "pods: fewer than none": row(INVALID, "maxPods: -1 is negative", maxPods=-1),
    "pods per core: fewer than none": row(INVALID, "podsPerCore: -1 is negative", podsPerCore=-1),
    "grace period: less than none": row(
        INVALID, "evictionMaxPodGracePeriod: -1 is negative", evictionMaxPodGracePeriod=-1
    ),
    # --- expressions
    "an expression for pods": row(DISABLED, 'maxPods: "vcpus * 8" is an expression', maxPods="vcpus * 8"),
    "an expression for an amount": row(
        DISABLED, 'kubeReserved[memory]: "max_pods * 11 + 255"', kubeReserved={"memory": "max_pods * 11 + 255"}
    ),
    "several expressions": row(
        DISABLED, "maxPods", "systemReserved[cpu]", maxPods="1+1", systemReserved={"cpu": "vcpus"}
    ),
    "a number in quotes is an expression too": row(DISABLED, 'maxPods: "110"', maxPods="110"),
    "what is wrong comes before expressions": row(INVALID, "podsPerCore", maxPods="1+1", podsPerCore=-1),
}


FORMULAS = {
    "expressions": row("", maxPods="min(110, vcpus * 8)", kubeReserved={"memory": "max_pods * 11 + 255", "cpu": "1"}),
    "a number in quotes": row("", maxPods="110"),
    "one that cannot be read": row(
        "KubeletExpressionInvalid", "systemReserved[cpu]: 'cpus' is not known", systemReserved={"cpu": "cpus * 2"}
    ),
    "one that is no number": row(
        "KubeletExpressionInvalid", "maxPods: it must be an int or a double", maxPods="vcpus > 2"
    ),
    "what is wrong comes before": row(INVALID, "podsPerCore", maxPods="1+", podsPerCore=-1),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_expressions_where_the_gate_is_on(name: str) -> None:
    kubelet, reason, words = FORMULAS[name]
    found = check_kubelet(kubelet, "AL2023", 33, expressions=True)
    assert (found.reason, found.warnings) == (reason, ())
    assert all(word in found.message for word in words)


@pytest.mark.parametrize("name", ROWS)
def test_a_rule(name: str) -> None:
    kubelet, reason, words = ROWS[name]
    found = check_kubelet(kubelet, "AL2023", 33)
    assert (found.reason, found.warnings) == (reason, ())
    assert bool(found.message) == bool(reason)
    for word in words:
        assert word in found.message


def test_every_problem_is_told_at_once() -> None:
    found = check_kubelet({"clusterDNS": 1, "maxPod": 1, "podsPerCore": "a", "registerWithTaints": []}, "AL2023", 33)
    assert [one.partition(":")[0] for one in found.message.split("; ")] == [
        "maxPod",
        "clusterDNS",
        "podsPerCore",
        "registerWithTaints",
    ]


VERSIONS: dict[str, tuple[str, Any, int, str]] = {
    "a field before its version": ("singleProcessOOMKill", True, 31, "(available since 1.32)"),
    "a field at its version": ("singleProcessOOMKill", True, 32, ""),
    "a field after its version": ("singleProcessOOMKill", True, 36, ""),
    "a field of 1.36 in 1.35": ("tlsCurvePreferences", [1], 35, "(available since 1.36)"),
    "a field of 1.36": ("tlsCurvePreferences", [1], 36, ""),
    "before the first table the first one counts": ("singleProcessOOMKill", True, 26, "(available since 1.32)"),
}


@pytest.mark.parametrize("name", VERSIONS)
def test_fields_have_versions(name: str) -> None:
    field, value, minor, words = VERSIONS[name]
    found = check_kubelet({field: value}, "AL2023", minor)
    assert (found.reason == "") is (words == "")
    assert words in found.message


def test_a_version_that_is_newer_than_the_tables_only_warns_of_unknown_fields() -> None:
    found = check_kubelet({"brandNew": 1, "maxPods": 42}, "AL2023", 99)
    assert found == Findings(warnings=("brandNew: unknown to the kubelet of Kubernetes 1.99",))


def test_there_is_a_table_for_every_minor_in_order() -> None:
    assert list(tables()) == [31, 32, 33, 34, 35, 36]


@pytest.mark.parametrize("minor", [31, 36])
def test_every_type_of_every_field_is_understood(minor: int) -> None:
    for field in tables()[minor].fields:
        values: list[Any] = [[{"a": 1}], {"a": {"b": 1}}, "a"]
        found = [check_kubelet({field: value}, "AL2023", minor) for value in values]
        assert any(one.message for one in found), f"{field} takes a list, an object and a string"


FAMILIES: dict[str, tuple[str, dict[str, Any], str]] = {
    **{
        f"{family} takes the managed fields": (family, MANAGED, "")
        for family in ("AL2", "AL2023", "Bottlerocket", "Custom", "Windows2019", "Windows2022", "Windows2025")
    },
    "AL2023 takes any field": ("AL2023", {"containerLogMaxFiles": 3}, ""),
    "Custom takes any field": ("Custom", {"containerLogMaxFiles": 3}, ""),
    "AL2 takes no other": (
        "AL2",
        {"containerLogMaxFiles": 3},
        "containerLogMaxFiles: not supported with AMI family AL2",
    ),
    "Bottlerocket takes no other": ("Bottlerocket", {"containerLogMaxFiles": 3}, "containerLogMaxFiles"),
    "Windows takes no other": ("Windows2022", {"containerLogMaxFiles": 3}, "containerLogMaxFiles"),
    "AL2 takes pods per core": ("AL2", {"podsPerCore": 2}, ""),
    "Windows takes pods per core": ("Windows2022", {"podsPerCore": 2}, ""),
    "Bottlerocket has no pods per core": ("Bottlerocket", {"podsPerCore": 2}, "podsPerCore: not supported"),
    "AL2 takes one DNS server": (
        "AL2",
        {"clusterDNS": ["a", "b"]},
        "clusterDNS: AMI family AL2 supports only one address",
    ),
    "Bottlerocket takes one DNS server": ("Bottlerocket", {"clusterDNS": ["a", "b"]}, "clusterDNS"),
    "AL2023 takes two DNS servers": ("AL2023", {"clusterDNS": ["a", "b"]}, ""),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family(name: str) -> None:
    family, kubelet, words = FAMILIES[name]
    found = check_kubelet(kubelet, family, 33)
    assert found.reason == (UNSUPPORTED if words else "")
    assert words in found.message


def test_the_managed_fields_are_the_twelve() -> None:
    assert MANAGED.keys() | {"podsPerCore"} == MANAGED_FIELDS
    assert len(MANAGED_FIELDS) == 12
