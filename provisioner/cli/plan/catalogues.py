"""What nodes can be had and for what: kwok's generated types, or EC2's of a region from the tables that come with Dovetail."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import click
import msgspec

from provisioner.apis import ec2, kwok, names
from provisioner.apis.core import Node
from provisioner.apis.ec2 import EC2NodeClass
from provisioner.apis.karpenter import API_VERSION, NodePool
from provisioner.cli.plan.objects import PlanObjects
from provisioner.cloudprovider.kwok.catalogue import generated, load
from provisioner.cloudprovider.types import InstanceType
from provisioner.ec2 import labels
from provisioner.ec2.market import static_data
from provisioner.ec2.market.offline import OfflineCatalogue
from provisioner.ec2.market.prices import static_prices
from provisioner.values.errors import UserError

KWOK: Final = "kwok"
_REGION: Final = re.compile(r"[a-z]{2,4}(?:-[a-z]+)+-[0-9]{1,2}", re.ASCII)
_DEFAULT_REGION: Final = "us-east-1"
_ZONES: Final = "abc"
DEFAULT_POOL: Final = "default"


@dataclass(frozen=True, slots=True)
class PlanCatalogue:
    """A catalogue of instance types.

    Attributes:
        name: as `--catalogue` takes it.
        types_of: what a NodePool may launch, before its own requirements.
        all_types: by name, for nodes that run already.
        well_known: labels that its nodes get by themselves.
        notes: what to know about its prices.
        estimated: whether its prices are those of another region.
    """

    name: str
    currency: str
    types_of: Callable[[NodePool], tuple[InstanceType, ...]]
    all_types: Mapping[str, InstanceType]
    well_known: frozenset[str]
    reservation_label: str = ""
    notes: tuple[str, ...] = ()
    estimated: bool = False


def catalogues_named(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """What --catalogue may be, for a shell."""
    every = ("auto", KWOK, *(f"ec2:{region}" for region in sorted(static_data.on_demand_prices())))
    return [one for one in every if one.startswith(incomplete)]


def chosen(name: str, objects: PlanObjects) -> PlanCatalogue:
    """The catalogue of that name; "auto" is kwok where NodePools or nodes are, else EC2 in the region of the nodes, else in us-east-1.

    Raises:
        UserError: there is no such catalogue.
    """
    if name == "auto":
        refs = {(pool.node_class_ref.group, pool.node_class_ref.kind) for pool in objects.pools}
        fake = any(node.spec.provider_id.startswith("kwok://") for node in objects.nodes)
        name = KWOK if fake or refs == {(kwok.GROUP, kwok.KIND)} else f"ec2:{_region_of(objects.nodes)}"
    kind, _, where = name.partition(":")
    if kind == KWOK:
        return _kwok(where)
    if kind != "ec2" or not _REGION.fullmatch(where):
        raise UserError(
            f"catalogue {name[:80]!r} does not exist. Use --catalogue kwok, kwok:FILE, or ec2:REGION as in ec2:us-east-1"
        )
    return _ec2(where, objects)


def default_pool(table: PlanCatalogue) -> NodePool:
    """A NodePool for input that has none: on-demand nodes that run Linux on amd64, of EC2 the families c, m and r from the third generation on."""
    requirements: list[dict[str, object]] = [
        {"key": names.OS_LABEL, "operator": "In", "values": ["linux"]},
        {"key": names.ARCH_LABEL, "operator": "In", "values": ["amd64"]},
        {"key": names.CAPACITY_TYPE_LABEL, "operator": "In", "values": [names.CAPACITY_ON_DEMAND]},
    ]
    reference = {"group": kwok.GROUP, "kind": kwok.KIND, "name": "default"}
    if table.name != KWOK:
        reference = {"group": ec2.GROUP, "kind": ec2.KIND, "name": "default"}
        requirements += [
            {"key": labels.CATEGORY, "operator": "In", "values": ["c", "m", "r"]},
            {"key": labels.GENERATION, "operator": "Gt", "values": ["2"]},
        ]
    spec = {"template": {"spec": {"nodeClassRef": reference, "requirements": requirements}}}
    made = {"apiVersion": API_VERSION, "kind": "NodePool", "metadata": {"name": DEFAULT_POOL}, "spec": spec}
    return msgspec.convert(made, NodePool)


def _kwok(path: str) -> PlanCatalogue:
    """Of a file in the form of INSTANCE_TYPES_FILE_PATH; the generated types where none is named."""
    catalogue = load(path) if path else generated()
    return PlanCatalogue(
        name=KWOK,
        currency="USD",
        types_of=lambda _: catalogue.types,
        all_types={one.name: one for one in catalogue.types},
        well_known=names.WELL_KNOWN_LABELS | catalogue.well_known_labels,
        notes=(
            *(() if path else ("The prices of the kwok catalogue are made up.",)),
            *map(str, catalogue.left_out),
        ),
    )


def _ec2(region: str, objects: PlanObjects) -> PlanCatalogue:
    prices = static_prices(region)
    zones = {node.metadata.labels.get(names.ZONE_LABEL, "") for node in objects.nodes}
    zones = {one for one in zones if one.startswith(region)} or {f"{region}{letter}" for letter in _ZONES}
    catalogue = OfflineCatalogue(region, prices, zones)

    def types_of(pool: NodePool) -> tuple[InstanceType, ...]:
        return catalogue.types(_class_of(pool, objects.classes))

    notes = [
        "On-demand prices are list prices for Linux. The catalogue has no spot prices, so spot nodes have on-demand prices."
    ]
    if prices.estimated_from:
        notes.append(
            f"The catalogue has no prices for {region}: prices are estimated from those of {prices.estimated_from}."
        )
    missing = sorted({_class_name(pool) for pool in objects.pools} - objects.classes.keys() - {""})
    if missing:
        notes.append(
            f"EC2NodeClass {', '.join(missing[:5])} is not in the input; AL2023 with default settings is assumed."
        )
    return PlanCatalogue(
        name=f"ec2:{region}",
        currency=prices.currency,
        types_of=types_of,
        all_types={one.name: one for one in catalogue.types(None)},
        well_known=names.WELL_KNOWN_LABELS | labels.WELL_KNOWN,
        reservation_label=labels.RESERVATION_ID,
        notes=tuple(notes),
        estimated=bool(prices.estimated_from),
    )


def _class_name(pool: NodePool) -> str:
    return pool.node_class_ref.name if pool.node_class_ref.kind == ec2.KIND else ""


def _class_of(pool: NodePool, classes: Mapping[str, EC2NodeClass]) -> EC2NodeClass | None:
    return classes.get(_class_name(pool))


def _region_of(nodes: Iterable[Node]) -> str:
    regions = sorted(node.metadata.labels.get(names.REGION_LABEL, "") for node in nodes)
    found = next((one for one in regions if _REGION.fullmatch(one)), "")
    return found or _DEFAULT_REGION
