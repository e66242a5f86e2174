"""NodeOverlay, karpenter.sh/v1alpha1: other prices or more resources for the instance types that it selects."""

from typing import Annotated, ClassVar, Final

from msgspec import field

from provisioner.apis import names
from provisioner.apis.core import Amounts
from provisioner.apis.karpenter import (
    BOUND_NEEDS_INTEGER,
    CLAIM_KEYS,
    IN_NEEDS_VALUES,
    NOT_IN_NEEDS_VALUES,
    LabelRequirement,
)
from provisioner.apis.meta import Condition, Object, ObjectMeta
from provisioner.apis.schema import CelRule, Schema

API_VERSION: Final = "karpenter.sh/v1alpha1"
PRICE: Final = r"^\d+(\.\d+)?$"
PRICE_ADJUSTMENT: Final = r"^(([+-]{1}(\d*\.?\d+))|(\+{1}\d*\.?\d+%)|(^(-\d{1,2}(\.\d+)?%)$)|(-100%))$"


class NodeOverlaySpec(Object, frozen=True, kw_only=True):
    """Which instance types are meant, and what about them is different."""

    schema: ClassVar[Schema] = Schema(
        rules=(
            CelRule("!has(self.price) || !has(self.priceAdjustment)", "cannot set both 'price' and 'priceAdjustment'"),
        )
    )

    requirements: Annotated[
        tuple[LabelRequirement, ...],
        Schema(
            "Which instance types and offerings the overlay changes.",
            required=True,
            max_items=100,
            items=CLAIM_KEYS,
            rules=(IN_NEEDS_VALUES, NOT_IN_NEEDS_VALUES, BOUND_NEEDS_INTEGER),
        ),
    ] = field(default_factory=lambda: ())
    price: Annotated[
        str | None, Schema("The price in US dollars an hour, instead of the provider's.", pattern=PRICE)
    ] = None
    price_adjustment: Annotated[
        str | None,
        Schema(
            "What is added to the provider's price: an amount with its sign (+0.5) or a percentage (-10%); the result "
            "is never below 0.",
            pattern=PRICE_ADJUSTMENT,
        ),
    ] = None
    capacity: Annotated[
        Amounts,
        Schema(
            "Extended resources that the instance types have besides what the provider tells.",
            rules=tuple(
                CelRule(f"self.all(k, k != '{resource}')", f"invalid resource restricted: {resource}")
                for resource in (names.CPU, names.MEMORY, names.EPHEMERAL_STORAGE, names.PODS)
            ),
        ),
    ] = field(default_factory=dict)
    weight: Annotated[
        int,
        Schema("Where overlays contradict, the one of higher weight counts.", minimum=1, maximum=10000, format="int32"),
    ] = 0


class NodeOverlayStatus(Object, frozen=True, kw_only=True):
    """Whether the overlay is in force."""

    conditions: Annotated[tuple[Condition, ...], Schema("Whether the overlay is in force, and why not.")] = ()


class NodeOverlay(Object, frozen=True, kw_only=True):
    """karpenter.sh/v1alpha1 NodeOverlay."""

    api_version: str = field(default_factory=lambda: API_VERSION)
    kind: str = field(default_factory=lambda: "NodeOverlay")
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[NodeOverlaySpec, Schema("What is different for which instance types.", required=True)]
    status: NodeOverlayStatus = NodeOverlayStatus()
