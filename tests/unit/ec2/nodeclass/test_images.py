"""Images: the parameters of every family, the questions, and which image is used."""

from typing import Any

import msgspec
import pytest

from provisioner.apis.ec2 import AMI, FAMILIES, AMISelectorTerm, EC2NodeClass
from provisioner.ec2.nodeclass.images import (
    NEURON,
    NVIDIA,
    STANDARD,
    Published,
    Variant,
    carried,
    chosen,
    images_of,
    published,
    queries,
)
from tests.support.clock import NOON

EKS = "/aws/service/eks/optimized-ami/1.33"
ROCKET = "/aws/service/bottlerocket/aws-k8s-1.33"

PARAMETERS: dict[str, tuple[str, str, list[tuple[str, str, tuple[Variant, ...]]]]] = {
    "AL2, latest": (
        "AL2",
        "latest",
        [
            (f"{EKS}/amazon-linux-2/recommended/image_id", "amd64", (STANDARD,)),
            (f"{EKS}/amazon-linux-2-arm64/recommended/image_id", "arm64", (STANDARD,)),
            (f"{EKS}/amazon-linux-2-gpu/recommended/image_id", "amd64", (NEURON, NVIDIA)),
        ],
    ),
    "AL2, a version": (
        "AL2",
        "v20240807",
        [
            (f"{EKS}/amazon-linux-2/amazon-eks-node-1.33-v20240807/image_id", "amd64", (STANDARD,)),
            (f"{EKS}/amazon-linux-2-arm64/amazon-eks-arm64-node-1.33-v20240807/image_id", "arm64", (STANDARD,)),
            (f"{EKS}/amazon-linux-2-gpu/amazon-eks-gpu-node-1.33-v20240807/image_id", "amd64", (NEURON, NVIDIA)),
        ],
    ),
    "AL2023, latest": (
        "AL2023",
        "latest",
        [
            (f"{EKS}/amazon-linux-2023/x86_64/standard/recommended/image_id", "amd64", (STANDARD,)),
            (f"{EKS}/amazon-linux-2023/x86_64/nvidia/recommended/image_id", "amd64", (NVIDIA,)),
            (f"{EKS}/amazon-linux-2023/x86_64/neuron/recommended/image_id", "amd64", (NEURON,)),
            (f"{EKS}/amazon-linux-2023/arm64/standard/recommended/image_id", "arm64", (STANDARD,)),
            (f"{EKS}/amazon-linux-2023/arm64/nvidia/recommended/image_id", "arm64", (NVIDIA,)),
        ],
    ),
    "AL2023, a version": (
        "AL2023",
        "v20260101",
        [
            (
                f"{EKS}/amazon-linux-2023/{path}/{sort}/amazon-eks-node-al2023-{path}-{sort}-1.33-v20260101/image_id",
                arch,
                (variant,),
            )
            for path, arch, sort, variant in (
                ("x86_64", "amd64", "standard", STANDARD),
                ("x86_64", "amd64", "nvidia", NVIDIA),
                ("x86_64", "amd64", "neuron", NEURON),
                ("arm64", "arm64", "standard", STANDARD),
                ("arm64", "arm64", "nvidia", NVIDIA),
            )
        ],
    ),
    "Bottlerocket, a version with a v": (
        "Bottlerocket",
        "v1.20.4",
        [
            (f"{ROCKET}/x86_64/1.20.4/image_id", "amd64", (STANDARD, NEURON)),
            (f"{ROCKET}/arm64/1.20.4/image_id", "arm64", (STANDARD,)),
            (f"{ROCKET}-nvidia/x86_64/1.20.4/image_id", "amd64", (NVIDIA,)),
            (f"{ROCKET}-nvidia/arm64/1.20.4/image_id", "arm64", (NVIDIA,)),
        ],
    ),
}


@pytest.mark.parametrize("case", PARAMETERS.values(), ids=PARAMETERS)
def test_parameters(case: tuple[str, str, list[tuple[str, str, tuple[Variant, ...]]]]) -> None:
    family, version, want = case
    assert [(one.parameter, one.arch, one.variants) for one in published(family, version, 33)] == want
    assert {one.mutable for one in published(family, version, 33)} == {version == "latest"}


@pytest.mark.parametrize(("family", "year"), [("Windows2019", 2019), ("Windows2022", 2022), ("Windows2025", 2025)])
def test_parameters_of_windows(family: str, year: int) -> None:
    (one,) = published(family, "latest", 35)
    assert one.parameter == (
        f"/aws/service/ami-windows-latest/Windows_Server-{year}-English-Core-EKS_Optimized-1.35/image_id"
    )
    build = {2019: "10.0.17763", 2022: "10.0.20348", 2025: "10.0.26100"}[year]
    ((system, version),) = one.variants
    assert (system.key, system.values) == ("kubernetes.io/os", ("windows",))
    assert (version.key, version.values) == ("node.kubernetes.io/windows-build", (build,))


def test_custom_images_are_not_published() -> None:
    assert {family for family in FAMILIES if not published(family, "latest", 33)} == {"Custom"}


Term = AMISelectorTerm
AVAILABLE = {"Name": "state", "Values": ["available"]}


def named(name: str, value: str) -> dict[str, Any]:
    return {"Name": name, "Values": [value]}


QUERIES: dict[str, tuple[tuple[Term, ...], list[tuple[list[dict[str, Any]], list[str] | None]]]] = {
    "by id and parameter, together": (
        (Term(id="ami-2"), Term(ssm_parameter="/p"), Term(id="ami-1")),
        [([{"Name": "image-id", "Values": ["ami-1", "ami-2", "ami-p"]}], None)],
    ),
    "an id beside a parameter wins": (
        (Term(id="ami-2", ssm_parameter="/p"),),
        [([{"Name": "image-id", "Values": ["ami-2"]}], None)],
    ),
    "a parameter that is missing selects nothing": ((Term(ssm_parameter="/missing"),), []),
    "by name: of ours and of Amazon": ((Term(name="x-*"),), [([named("name", "x-*")], ["self", "amazon"])]),
    "by name and owner": ((Term(name="x-*", owner="1"),), [([named("name", "x-*")], ["1"])]),
    "by tags: of whoever": ((Term(tags={"a": "b"}),), [([named("tag:a", "b")], None)]),
    "by tags and owner": ((Term(tags={"a": "*"}, owner="1"),), [([named("tag-key", "a")], ["1"])]),
    "by name and tags": (
        (Term(name="x", tags={"a": "b"}),),
        [([named("name", "x"), named("tag:a", "b")], ["self", "amazon"])],
    ),
}


@pytest.mark.parametrize("case", QUERIES.values(), ids=QUERIES)
def test_what_is_asked(
    case: tuple[tuple[Term, ...], list[tuple[list[dict[str, Any]], list[str] | None]]],
) -> None:
    terms, want = case
    asked = [query.parameters() for query in queries(terms, {"/p": "ami-p"})]
    assert [(one["Filters"], one.get("Owners")) for one in asked] == [
        ([*filters, AVAILABLE], owners) for filters, owners in want
    ]
    assert all(one["IncludeDeprecated"] is True and one["MaxResults"] == 1000 for one in asked)


def row(name: str, created: str = "2026-01-01T00:00:00.000Z", arch: str = "x86_64", **more: str) -> dict[str, Any]:
    return {"ImageId": f"ami-{name}", "Name": name, "Architecture": arch, "CreationDate": created, **more}


PAST, FUTURE = {"DeprecationTime": "2026-11-21T12:00:00.000Z"}, {"DeprecationTime": "2026-11-21T12:00:01.000Z"}
CHOSEN: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
    "none": ([], []),
    "the newest": ([row("a"), row("b", "2026-02-01T00:00:00Z")], ["ami-b"]),
    "of equally old ones the greatest name": ([row("b"), row("c"), row("a")], ["ami-c"]),
    "one that is not deprecated, though it is older": (
        [row("a"), row("b", "2026-02-01T00:00:00Z", **PAST)],
        ["ami-a"],
    ),
    "one that will be deprecated is not": ([row("a"), row("b", "2026-02-01T00:00:00Z", **FUTURE)], ["ami-b"]),
    "a deprecated one when there is no other": ([row("a", **PAST)], ["ami-a"]),
    "one of each architecture, newest first": (
        [row("a"), row("b", "2026-02-01T00:00:00Z", "arm64")],
        ["ami-b", "ami-a"],
    ),
    "those of other architectures are left out": ([row("a", arch="i386"), row("b", arch="x86_64_mac")], []),
    "a date that cannot be read is the oldest": ([row("a", "?"), row("b")], ["ami-b"]),
}


@pytest.mark.parametrize("case", CHOSEN.values(), ids=CHOSEN)
def test_which_image_is_used(case: tuple[list[dict[str, Any]], list[str]]) -> None:
    rows, want = case
    assert [one.id for one in chosen(images_of(rows, NOON))] == want


def test_one_image_may_be_for_several_sorts_of_instances() -> None:
    amis = chosen(images_of([row("gpu")], NOON), {"ami-gpu": [NEURON, NVIDIA]})
    assert [(one.id, [(r.key, r.operator, r.values) for r in one.requirements]) for one in amis] == [
        (
            "ami-gpu",
            [("kubernetes.io/arch", "In", ("amd64",)), ("karpenter.k8s.aws/instance-accelerator-count", "Exists", ())],
        ),
        (
            "ami-gpu",
            [("kubernetes.io/arch", "In", ("amd64",)), ("karpenter.k8s.aws/instance-gpu-count", "Exists", ())],
        ),
    ]


def test_requirements_are_ordered_by_length_of_the_key_then_by_key() -> None:
    (ami,) = chosen(images_of([row("a")], NOON), {"ami-a": [STANDARD]})
    assert [one.key for one in ami.requirements] == [
        "kubernetes.io/arch",
        "karpenter.k8s.aws/instance-gpu-count",
        "karpenter.k8s.aws/instance-accelerator-count",
    ]


def test_a_deprecated_image_says_so() -> None:
    (ami,) = chosen(images_of([row("a", **PAST)], NOON))
    assert ami.deprecated


# --- what a status has for an image that cannot be looked up


def class_of(amis: tuple[AMI, ...], status: str = "True", observed: int = 2) -> EC2NodeClass:
    conditions = [{"type": "AMIsReady", "status": status, "observedGeneration": observed}]
    return msgspec.convert(
        {"metadata": {"generation": 2}, "status": {"amis": msgspec.to_builtins(amis), "conditions": conditions}},
        EC2NodeClass,
    )


NVIDIA_AMIS = chosen(images_of([row("gpu")], NOON), {"ami-gpu": [NVIDIA]})
CARRIED: dict[str, tuple[EC2NodeClass, Published, str]] = {
    "the same sort": (class_of(NVIDIA_AMIS), Published("/p", "amd64", (NVIDIA,), True), "ami-gpu"),
    "another architecture": (class_of(NVIDIA_AMIS), Published("/p", "arm64", (NVIDIA,), True), ""),
    "another sort": (class_of(NVIDIA_AMIS), Published("/p", "amd64", (STANDARD,), True), ""),
    "of an older spec": (class_of(NVIDIA_AMIS, observed=1), Published("/p", "amd64", (NVIDIA,), True), ""),
    "of a list that was not good": (class_of(NVIDIA_AMIS, "False"), Published("/p", "amd64", (NVIDIA,), True), ""),
}


@pytest.mark.parametrize("case", CARRIED.values(), ids=CARRIED)
def test_what_the_status_still_has(case: tuple[EC2NodeClass, Published, str]) -> None:
    node_class, image, want = case
    assert carried(node_class, image) == want
