"""Images: where AWS publishes those of a family, which of those that a class selects are used, and for what. Pure.

Source: spec/karpenter-aws.md 2.1 and 3.3.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from provisioner.apis import ec2, names
from provisioner.apis.ec2 import AMI, AMIRequirement, AMISelectorTerm, EC2NodeClass
from provisioner.apis.meta import condition
from provisioner.ec2 import labels
from provisioner.ec2.access.wire import instant_of
from provisioner.ec2.market.instance_types import ARCHITECTURES, WINDOWS_BUILDS
from provisioner.ec2.nodeclass.queries import Filters, Query, tag_filters
from provisioner.values.requirement import Operator

OPERATION: Final = "describe_images"
MEMBER: Final = "Images"
_PAGE: Final = 1000
_NEVER: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WINDOWS_YEARS: Final = {ec2.WINDOWS_2019: "2019", ec2.WINDOWS_2022: "2022", ec2.WINDOWS_2025: "2025"}
_DEFAULT_OWNERS: Final = ("self", "amazon")
LATEST: Final = "latest"

Variant = tuple[AMIRequirement, ...]
"""What instance types must be like for one sort of image, without the architecture."""

STANDARD: Final[Variant] = (
    AMIRequirement(key=labels.GPU_COUNT, operator=Operator.DOES_NOT_EXIST.value),
    AMIRequirement(key=labels.ACCELERATOR_COUNT, operator=Operator.DOES_NOT_EXIST.value),
)
NVIDIA: Final[Variant] = (AMIRequirement(key=labels.GPU_COUNT, operator=Operator.EXISTS.value),)
NEURON: Final[Variant] = (AMIRequirement(key=labels.ACCELERATOR_COUNT, operator=Operator.EXISTS.value),)


@dataclass(frozen=True, slots=True)
class Published:
    """One image that AWS publishes.

    Attributes:
        parameter: SSM parameter that holds its id.
        arch: of the image: amd64 or arm64.
        variants: what it is for, each by itself.
        mutable: whether the parameter moves on to newer images.
    """

    parameter: str
    arch: str
    variants: tuple[Variant, ...]
    mutable: bool


def published(family: str, version: str, minor: int) -> tuple[Published, ...]:
    """The images of a family and version for one minor of Kubernetes; empty for Custom.

    Args:
        family: of the alias.
        version: of the alias: "latest", or as the family counts.
        minor: of the cluster's version.
    """
    latest = version == LATEST
    match family:
        case ec2.AL2:
            return tuple(
                Published(
                    f"/aws/service/eks/optimized-ami/1.{minor}/amazon-linux-2{path}/"
                    f"{'recommended' if latest else f'amazon-eks-{name}node-1.{minor}-{version}'}/image_id",
                    arch,
                    variants,
                    latest,
                )
                for path, name, arch, variants in (
                    ("", "", "amd64", (STANDARD,)),
                    ("-arm64", "arm64-", "arm64", (STANDARD,)),
                    ("-gpu", "gpu-", "amd64", (NEURON, NVIDIA)),
                )
            )
        case ec2.AL2023:
            return tuple(
                Published(
                    f"/aws/service/eks/optimized-ami/1.{minor}/amazon-linux-2023/{path}/{sort}/"
                    f"{'recommended' if latest else f'amazon-eks-node-al2023-{path}-{sort}-1.{minor}-{version}'}/image_id",
                    arch,
                    (variant,),
                    latest,
                )
                for path, arch, sort, variant in (
                    ("x86_64", "amd64", "standard", STANDARD),
                    ("x86_64", "amd64", "nvidia", NVIDIA),
                    ("x86_64", "amd64", "neuron", NEURON),
                    ("arm64", "arm64", "standard", STANDARD),
                    ("arm64", "arm64", "nvidia", NVIDIA),
                )
            )
        case ec2.BOTTLEROCKET:
            return tuple(
                Published(
                    f"/aws/service/bottlerocket/aws-k8s-1.{minor}{sort}/{path}/{version.lstrip('v')}/image_id",
                    arch,
                    variants,
                    latest,
                )
                for path, arch, sort, variants in (
                    ("x86_64", "amd64", "", (STANDARD, NEURON)),
                    ("arm64", "arm64", "", (STANDARD,)),
                    ("x86_64", "amd64", "-nvidia", (NVIDIA,)),
                    ("arm64", "arm64", "-nvidia", (NVIDIA,)),
                )
            )
        case ec2.WINDOWS_2019 | ec2.WINDOWS_2022 | ec2.WINDOWS_2025:
            return (
                Published(
                    f"/aws/service/ami-windows-latest/Windows_Server-{_WINDOWS_YEARS[family]}-English-Core-"
                    f"EKS_Optimized-1.{minor}/image_id",
                    "amd64",
                    (_windows(family),),
                    True,
                ),
            )
        case _:
            return ()


def _windows(family: str) -> Variant:
    return (
        AMIRequirement(key=names.OS_LABEL, operator=Operator.IN.value, values=("windows",)),
        AMIRequirement(key=names.WINDOWS_BUILD_LABEL, operator=Operator.IN.value, values=(WINDOWS_BUILDS[family],)),
    )


def alias_term(node_class: EC2NodeClass) -> AMISelectorTerm | None:
    """The term with an alias; there is at most one, and no other beside it."""
    return next((term for term in node_class.spec.ami_selector_terms if term.alias), None)


def by_ids(ids: Iterable[str]) -> Query:
    """The question for images by id."""
    return _query((("image-id", tuple(sorted(set(ids)))),))


def queries(terms: Iterable[AMISelectorTerm], parameters: Mapping[str, str]) -> tuple[Query, ...]:
    """What to ask EC2 for, for terms without alias.

    Args:
        terms: of the class.
        parameters: what its SSM parameters hold; those that are missing select nothing.
    """
    asked: list[Query] = []
    ids: set[str] = set()
    for term in terms:
        if term.id:
            ids.add(term.id)
        elif term.ssm_parameter:
            ids.update({parameters[term.ssm_parameter]} if term.ssm_parameter in parameters else ())
        elif term.name or term.tags or term.owner:
            filters = (*((("name", (term.name,)),) if term.name else ()), *tag_filters(term.tags))
            owners = (term.owner,) if term.owner else _DEFAULT_OWNERS if term.name else ()
            asked.append(_query(filters, owners))
    if ids:
        asked.append(by_ids(ids))
    return tuple(dict.fromkeys(asked))


def _query(filters: Filters, owners: tuple[str, ...] = ()) -> Query:
    extra: tuple[tuple[str, Any], ...] = (("IncludeDeprecated", True), *((("Owners", owners),) if owners else ()))
    return Query(OPERATION, MEMBER, (*filters, ("state", ("available",))), extra, page=_PAGE)


@dataclass(frozen=True, slots=True)
class Image:
    """One image, as EC2 describes it; `deprecated` at the time when it was read."""

    id: str
    name: str
    arch: str
    created: datetime
    deprecated: bool

    @property
    def rank(self) -> tuple[bool, datetime, str]:
        """The best image has the greatest."""
        return not self.deprecated, self.created, self.name


def images_of(rows: Iterable[Mapping[str, Any]], now: datetime) -> tuple[Image, ...]:
    """The images of these answers that Kubernetes can run on, once each, by id."""
    read: dict[str, Image] = {}
    for row in rows:
        arch = ARCHITECTURES.get(row.get("Architecture", ""))
        if arch is not None:
            end = instant_of(row.get("DeprecationTime", ""))
            read[row["ImageId"]] = Image(
                row["ImageId"],
                row.get("Name", ""),
                arch,
                instant_of(row.get("CreationDate", "")) or _NEVER,
                end is not None and end <= now,
            )
    return tuple(read[name] for name in sorted(read))


def chosen(images: Iterable[Image], variants: Mapping[str, Sequence[Variant]] | None = None) -> tuple[AMI, ...]:
    """Of all images that are for the same types the best one: not deprecated, then newest, then by name.

    Args:
        images: any order.
        variants: image id to what it is for; None: for everything of its architecture.

    Returns:
        Newest first, then by id, so the first that goes with a type is its image.
    """
    best: dict[Variant, Image] = {}
    for image in images:
        for variant in ((),) if variants is None else variants.get(image.id, ()):
            wanted = _ordered(
                (*variant, AMIRequirement(key=names.ARCH_LABEL, operator=Operator.IN.value, values=(image.arch,)))
            )
            if wanted not in best or image.rank > best[wanted].rank:
                best[wanted] = image
    newest = sorted(best.items(), key=lambda pair: (-pair[1].created.timestamp(), pair[1].id, repr(pair[0])))
    return tuple(
        AMI(id=image.id, name=image.name, deprecated=image.deprecated, requirements=wanted) for wanted, image in newest
    )


def carried(node_class: EC2NodeClass, image: Published) -> str:
    """The id that the class's status has for a published image that cannot be looked up now; "" where it has none.

    Only a status that was made from the spec as it stands counts: another alias has other images.
    """
    known = condition(node_class.status.conditions, ec2.AMIS_READY)
    if known is None or known.status != names.TRUE or known.observed_generation != node_class.metadata.generation:
        return ""
    arch = AMIRequirement(key=names.ARCH_LABEL, operator=Operator.IN.value, values=(image.arch,))
    wanted = {_ordered((*variant, arch)) for variant in image.variants}
    return next((one.id for one in node_class.status.amis if _ordered(one.requirements) in wanted), "")


def _ordered(requirements: Iterable[AMIRequirement]) -> Variant:
    return tuple(sorted(requirements, key=lambda one: (len(one.key), one.key)))
