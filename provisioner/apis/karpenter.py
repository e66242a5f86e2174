"""NodePool and NodeClaim, karpenter.sh/v1.

Quantities and durations keep the text that the user wrote ("720h", "Never"), so an object goes back as it came.
In a NodePool's template an absent list and an empty one differ (its hash tells them apart): absent is `UNSET` there.
Whoever only wants to know what the list holds asks the properties of `NodePool`.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Annotated, ClassVar, Final, TypeVar

from msgspec import UNSET, UnsetType, field

from provisioner.apis import names
from provisioner.apis.core import Amounts
from provisioner.apis.meta import Condition, Object, ObjectMeta
from provisioner.apis.schema import CelRule, Schema
from provisioner.values.duration import DurationError, parse_duration
from provisioner.values.requirement import Requirement, Requirements
from provisioner.values.taints import Taint

T = TypeVar("T")

API_VERSION: Final = "karpenter.sh/v1"
NEVER: Final = "Never"

QUALIFIED_NAME: Final = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(\/))?"
    r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)
LABEL_VALUE: Final = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"
DURATION: Final = r"^([0-9]+(s|m|h))+$"
DURATION_OR_NEVER: Final = r"^(([0-9]+(s|m|h))+|Never)$"
CRON: Final = r"^(@(annually|yearly|monthly|weekly|daily|midnight|hourly))|((.+)\s(.+)\s(.+)\s(.+)\s(.+))$"
CRON_WINDOW: Final = r"^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$"
NODE_COUNT: Final = r"^((100|[0-9]{1,2})%|[0-9]+)$"

NODES: Final = Schema("How many nodes.", minimum=0, format="int64", default=0)

TAINT: Final = Schema(
    items=Schema(
        replace={
            "type": "object",
            "description": "A taint on the node that repels every pod that does not tolerate it.",
            "required": ["effect", "key"],
            "properties": {
                "effect": {
                    "type": "string",
                    "description": "What happens to pods that do not tolerate the taint.",
                    "enum": [names.NO_SCHEDULE, names.PREFER_NO_SCHEDULE, names.NO_EXECUTE],
                },
                "key": {
                    "type": "string",
                    "description": "Key of the taint.",
                    "minLength": 1,
                    "pattern": QUALIFIED_NAME,
                },
                "timeAdded": {
                    "type": "string",
                    "format": "date-time",
                    "description": "When the taint was added.",
                },
                "value": {
                    "type": "string",
                    "description": "Value that belongs to the key.",
                    "pattern": QUALIFIED_NAME,
                },
            },
        }
    )
)

IN_NEEDS_VALUES: Final = CelRule(
    "self.all(r, r.operator != 'In' || (has(r.values) && r.values.size() > 0))",
    "requirements with operator 'In' must have a value defined",
)
NOT_IN_NEEDS_VALUES: Final = CelRule(
    "self.all(r, r.operator != 'NotIn' || (has(r.values) && r.values.size() > 0))",
    "requirements with operator 'NotIn' must have a value defined",
)
BOUND_NEEDS_INTEGER: Final = CelRule(
    "self.all(r, !(r.operator in ['Gt', 'Lt', 'Gte', 'Lte']) || (has(r.values) && r.values.size() == 1"
    " && r.values[0].matches('^[0-9]+$') && int(r.values[0]) >= 0))",
    "requirements operator 'Gt', 'Lt', 'Gte' or 'Lte' must have a single positive integer value",
)
MIN_VALUES_WITHIN: Final = CelRule(
    "self.all(r, !(r.operator == 'In' && has(r.minValues)) || (has(r.values) && r.values.size() >= r.minValues))",
    "requirements with 'minValues' must have at least that many values specified in the 'values' field",
)
KEY_DOMAIN: Final = CelRule(
    f"self in ['{names.CAPACITY_TYPE_LABEL}', '{names.NODEPOOL_LABEL}']"
    " || !self.find('^([^/]+)').endsWith('karpenter.sh')",
    'label domain "karpenter.sh" is restricted',
)
KEY_NOT_NODEPOOL: Final = CelRule(f"self != '{names.NODEPOOL_LABEL}'", f'label "{names.NODEPOOL_LABEL}" is restricted')
KEY_NOT_HOSTNAME: Final = CelRule(f"self != '{names.HOSTNAME_LABEL}'", f'label "{names.HOSTNAME_LABEL}" is restricted')
POOL_KEYS: Final = Schema(fields={"key": Schema(rules=(KEY_DOMAIN, KEY_NOT_NODEPOOL, KEY_NOT_HOSTNAME))})
CLAIM_KEYS: Final = Schema(fields={"key": Schema(rules=(KEY_DOMAIN, KEY_NOT_HOSTNAME))})


def _of_keys(rule: CelRule) -> CelRule:
    """The same of every key of a map."""
    return CelRule(f"self.all(k, {rule.expression.replace('self', 'k')})", rule.message)


class LabelRequirement(Object, frozen=True, kw_only=True):
    """One requirement on labels, as it stands on the wire, without minValues."""

    key: Annotated[
        str, Schema("The label that the requirement applies to.", required=True, max_length=316, pattern=QUALIFIED_NAME)
    ]
    operator: Annotated[
        str,
        Schema(
            "Relation between the value of the label and the given values.",
            required=True,
            enum=("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"),
        ),
    ]
    values: Annotated[
        tuple[str, ...],
        Schema(
            "The values that the operator compares with: some for In and NotIn, none for Exists and DoesNotExist, "
            "exactly one integer for Gt, Lt, Gte and Lte.",
            list_type="atomic",
            items=Schema(max_length=63, pattern=LABEL_VALUE),
        ),
    ] = ()

    def requirement(self) -> Requirement:
        """The value that this stands for.

        Raises:
            RequirementError: unknown operator, or values that it does not go with.
        """
        return Requirement.of(self.key, self.operator, self.values)


class RequirementSpec(LabelRequirement, frozen=True, kw_only=True):
    """One requirement on a node's labels, as it stands on the wire."""

    min_values: Annotated[
        int | None,
        Schema(
            "How many different values of this label the instance types offered to a launch must still have.",
            minimum=1,
            maximum=50,
        ),
    ] = None

    def requirement(self) -> Requirement:
        """See `LabelRequirement.requirement`."""
        return Requirement.of(self.key, self.operator, self.values, self.min_values)


def requirements_of(specs: Iterable[RequirementSpec]) -> Requirements:
    """The requirements of a list on the wire; several of one key are intersected.

    Raises:
        RequirementError: one of them is malformed.
    """
    return Requirements.of(spec.requirement() for spec in specs)


class NodeClassReference(Object, frozen=True, kw_only=True):
    """The provider's object that says how instances are made; it has no namespace."""

    kind: Annotated[str, Schema("Kind of the node class.", required=True, min_length=1)] = field(
        default_factory=lambda: ""
    )
    name: Annotated[str, Schema("Name of the node class.", required=True, min_length=1)] = field(
        default_factory=lambda: ""
    )
    group: Annotated[str, Schema("API group of the node class.", required=True, min_length=1, pattern=r"^[^/]*$")] = (
        field(default_factory=lambda: "")
    )


# --- NodePool --------------------------------------------------------------------------------------------------


class Budget(Object, frozen=True, kw_only=True):
    """How many nodes of a pool may be away at once, always or in a time window.

    `reasons` absent means every reason; an explicit empty list means none.
    """

    nodes: Annotated[
        str,
        Schema(
            "How many nodes may be disrupted at the same time: a number, or a percentage of the pool's nodes, "
            "rounded up. 0 stops voluntary disruption.",
            required=True,
            default="10%",
            pattern=NODE_COUNT,
        ),
    ] = field(default_factory=lambda: "10%")
    reasons: Annotated[
        tuple[str, ...] | UnsetType,
        Schema(
            "The disruption reasons that this budget limits; all reasons if absent.",
            list_type="set",
            max_items=50,
            items=Schema(enum=names.BUDGET_REASONS),
        ),
    ] = UNSET
    schedule: Annotated[
        str | None,
        Schema(
            "When the budget becomes active: five cron fields or a macro such as @daily, in UTC. Goes with duration.",
            pattern=CRON,
        ),
    ] = None
    duration: Annotated[
        str | None,
        Schema(
            "For how long the budget stays active after each time of the schedule: hours and minutes.",
            pattern=CRON_WINDOW,
        ),
    ] = None


class DisruptionSpec(Object, frozen=True, kw_only=True):
    """When nodes of a pool may be replaced or removed."""

    consolidate_after: Annotated[
        str,
        Schema(
            "How long a node must have seen no pod come or go before it may be consolidated; Never turns "
            "consolidation off.",
            default="0s",
            pattern=DURATION_OR_NEVER,
        ),
    ] = field(default_factory=lambda: "0s")
    consolidation_policy: Annotated[
        str,
        Schema(
            "Nodes that are considered for consolidation: only empty nodes, or also nodes whose pods fit on other nodes or on a cheaper node.",
            default="WhenEmptyOrUnderutilized",
            enum=("WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"),
        ),
    ] = "WhenEmptyOrUnderutilized"
    budgets: Annotated[
        tuple[Budget, ...],
        Schema(
            "Limits on how many nodes may be disrupted at once; of those that are active the tightest counts.",
            default=({"nodes": "10%"},),
            max_items=50,
            rules=(
                CelRule(
                    "self.all(b, has(b.schedule) == has(b.duration))",
                    "'schedule' must be set with 'duration'",
                ),
            ),
        ),
    ] = (Budget(),)


class TemplateMetadata(Object, frozen=True, kw_only=True):
    """Labels and annotations that a pool's nodes get; absent and empty differ."""

    labels: Annotated[
        dict[str, str] | UnsetType,
        Schema(
            "Labels that are set on every node of the NodePool.",
            max_properties=100,
            items=Schema(max_length=63, pattern=LABEL_VALUE),
            rules=tuple(map(_of_keys, (KEY_DOMAIN, KEY_NOT_NODEPOOL, KEY_NOT_HOSTNAME))),
        ),
    ] = UNSET
    annotations: Annotated[
        dict[str, str] | UnsetType, Schema("Annotations that are set on every node of the NodePool.")
    ] = UNSET


class NodeClaimTemplateSpec(Object, frozen=True, kw_only=True):
    """What a pool's nodes are like; absent and empty lists differ."""

    taints: Annotated[
        tuple[Taint, ...] | UnsetType,
        Schema("Taints that are set on every node of the NodePool.", list_type="atomic", items=TAINT.items),
    ] = UNSET
    startup_taints: Annotated[
        tuple[Taint, ...] | UnsetType,
        Schema(
            "Taints that nodes start with and that another component removes once they are ready; pods do not need to "
            "tolerate them.",
            list_type="atomic",
            items=TAINT.items,
        ),
    ] = UNSET
    requirements: Annotated[
        tuple[RequirementSpec, ...],
        Schema(
            "What the nodes' labels must be like; the instance types to choose from follow from it.",
            required=True,
            max_items=100,
            items=POOL_KEYS,
            rules=(IN_NEEDS_VALUES, BOUND_NEEDS_INTEGER, MIN_VALUES_WITHIN),
        ),
    ] = field(default_factory=lambda: ())
    node_class_ref: Annotated[
        NodeClassReference,
        Schema(
            "The node class that instances are launched with.",
            required=True,
            rules=(
                CelRule("self.group == oldSelf.group", "nodeClassRef.group is immutable"),
                CelRule("self.kind == oldSelf.kind", "nodeClassRef.kind is immutable"),
            ),
        ),
    ]
    termination_grace_period: Annotated[
        str | UnsetType,
        Schema(
            "The longest time a node may take to drain; then its pods are deleted whatever forbids their eviction. "
            "Absent: it waits for ever.",
            pattern=DURATION,
        ),
    ] = UNSET
    expire_after: Annotated[
        str | UnsetType,
        Schema(
            "The age at which a node is deleted; Never turns expiry off.", default="720h", pattern=DURATION_OR_NEVER
        ),
    ] = UNSET


class NodeClaimTemplate(Object, frozen=True, kw_only=True, gc=True, weakref=True):
    """What is copied into each NodeClaim of a pool."""

    metadata: Annotated[TemplateMetadata, Schema("Labels and annotations of the nodes.")] = TemplateMetadata()
    spec: Annotated[NodeClaimTemplateSpec, Schema("Specification of the nodes.", required=True)]


class NodePoolSpec(Object, frozen=True, kw_only=True):
    """The pool's template, its limits and when its nodes may be disrupted."""

    schema: ClassVar[Schema] = Schema(
        rules=(
            CelRule(
                "has(self.replicas) == has(oldSelf.replicas)",
                "cannot transition a NodePool between static (replicas set) and dynamic (replicas unset)",
            ),
            CelRule(
                "!has(self.replicas) || !has(self.limits) || size(self.limits) == 0"
                " || (size(self.limits) == 1 && 'nodes' in self.limits)",
                "only 'limits.nodes' is supported on static NodePools",
            ),
            CelRule("!has(self.replicas) || !has(self.weight)", "'weight' is not supported on static NodePools"),
        )
    )

    template: Annotated[NodeClaimTemplate, Schema("Template of the nodes.", required=True)]
    disruption: Annotated[
        DisruptionSpec, Schema("When nodes may be disrupted.", default={"consolidateAfter": "0s"})
    ] = DisruptionSpec()
    limits: Annotated[
        Amounts,
        Schema("The most that all nodes of the pool may have together, by resource; `nodes` counts them."),
    ] = field(default_factory=dict)
    weight: Annotated[
        int, Schema("NodePools with a higher weight are preferred.", minimum=1, maximum=100, format="int32")
    ] = 0
    replicas: Annotated[
        int | None,
        Schema("Makes the pool static: this many nodes are kept, whatever pods there are.", minimum=0, format="int64"),
    ] = None


class NodePoolStatus(Object, frozen=True, kw_only=True):
    """What the pool uses now, and whether it can be used."""

    resources: Annotated[Amounts, Schema("Total resources of the nodes of the NodePool.")] = field(default_factory=dict)
    nodes: Annotated[int, NODES] = field(default_factory=lambda: 0)
    node_class_observed_generation: Annotated[
        int, Schema("The generation of the node class that registration health was concluded from.", format="int64")
    ] = 0
    conditions: Annotated[
        tuple[Condition, ...], Schema("Whether the NodePool can be used, and the reason if it cannot.")
    ] = ()


class NodePool(Object, frozen=True, kw_only=True):
    """karpenter.sh/v1 NodePool: which nodes may be made, and how they are looked after."""

    api_version: str = field(default_factory=lambda: API_VERSION)
    kind: str = field(default_factory=lambda: "NodePool")
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[NodePoolSpec, Schema("The nodes that can be created.", required=True)]
    status: NodePoolStatus = NodePoolStatus()

    @property
    def unknown_fields(self) -> tuple[str, ...]:
        """Paths of the fields of its spec that this version does not know, see `NewerNodePool`."""
        return ()

    @property
    def name(self) -> str:
        """Its name; pools have no namespace."""
        return self.metadata.name

    @property
    def labels(self) -> dict[str, str]:
        """Labels that its nodes get; not to be changed."""
        return _given(self.spec.template.metadata.labels, {})

    @property
    def annotations(self) -> dict[str, str]:
        """Annotations that its nodes get; not to be changed."""
        return _given(self.spec.template.metadata.annotations, {})

    @property
    def taints(self) -> tuple[Taint, ...]:
        """Taints that its nodes keep."""
        return _given(self.spec.template.spec.taints, ())

    @property
    def startup_taints(self) -> tuple[Taint, ...]:
        """Taints that its nodes start with."""
        return _given(self.spec.template.spec.startup_taints, ())

    @property
    def node_class_ref(self) -> NodeClassReference:
        """The node class of its nodes."""
        return self.spec.template.spec.node_class_ref

    @property
    def is_static(self) -> bool:
        """Whether it keeps a fixed number of nodes."""
        return self.spec.replicas is not None


class NewerNodePool(NodePool, frozen=True, kw_only=True):
    """A NodePool with fields that this version does not know: another program's hash of it may say what ours does not, so no hash proves drift.

    Attributes:
        unread: their paths, sorted.
    """

    unread: tuple[str, ...] = ()

    @property
    def unknown_fields(self) -> tuple[str, ...]:
        """See `NodePool`."""
        return self.unread


def pool_of_class(reference: NodeClassReference) -> NodePool:
    """A NodePool that says nothing but its NodeClass and has no name, for what is asked about NodeClaims without a NodePool."""
    template = NodeClaimTemplate(spec=NodeClaimTemplateSpec(node_class_ref=reference))
    return NodePool(spec=NodePoolSpec(template=template))


def _given(value: T | UnsetType, otherwise: T) -> T:
    return otherwise if isinstance(value, UnsetType) else value


# --- NodeClaim -------------------------------------------------------------------------------------------------


class ResourceRequests(Object, frozen=True, kw_only=True):
    """What a claim's pods and daemons need together."""

    requests: Annotated[Amounts, Schema("Minimum resources of the node.")] = field(default_factory=dict)


class NodeClaimSpec(Object, frozen=True, kw_only=True):
    """What node is wanted; it never changes."""

    schema: ClassVar[Schema] = Schema(rules=(CelRule("self == oldSelf", "spec is immutable"),))

    taints: Annotated[
        tuple[Taint, ...], Schema("Taints that are set on the node.", list_type="atomic", items=TAINT.items)
    ] = ()
    startup_taints: Annotated[
        tuple[Taint, ...],
        Schema(
            "Taints that the node starts with and that another component removes once the node is ready.",
            list_type="atomic",
            items=TAINT.items,
        ),
    ] = ()
    requirements: Annotated[
        tuple[RequirementSpec, ...],
        Schema(
            "What the node's labels must be like.",
            required=True,
            max_items=100,
            items=CLAIM_KEYS,
            rules=(IN_NEEDS_VALUES, BOUND_NEEDS_INTEGER, MIN_VALUES_WITHIN),
        ),
    ] = field(default_factory=lambda: ())
    resources: Annotated[ResourceRequests, Schema("Resources that the node must provide.")] = ResourceRequests()
    node_class_ref: Annotated[
        NodeClassReference, Schema("The node class that the instance is launched with.", required=True)
    ]
    termination_grace_period: Annotated[
        str | None,
        Schema(
            "The longest time the node may take to drain; then its pods are deleted whatever forbids their eviction.",
            pattern=DURATION,
        ),
    ] = None
    expire_after: Annotated[
        str,
        Schema(
            "The age at which the node is deleted; Never turns expiry off.", default="720h", pattern=DURATION_OR_NEVER
        ),
    ] = field(default_factory=lambda: "720h")


class RelaxedCondition(Condition, frozen=True, kw_only=True):
    """What the schema of a claim demands of a condition: reason and message may be absent or empty."""

    reason: Annotated[
        str,
        Schema(
            "Why the condition has this status: one CamelCase word for programs.",
            max_length=1024,
            pattern=r"^([A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?|)$",
        ),
    ] = ""
    message: Annotated[str, Schema("The details of the last change, for people.", max_length=32768)] = ""


class NodeClaimStatus(Object, frozen=True, kw_only=True):
    """What has become of the claim."""

    node_name: Annotated[str, Schema("Name of the node, once it has joined.")] = ""
    provider_id: Annotated[str, Schema("Identifier of the instance at the cloud provider.")] = field(
        default="", name="providerID"
    )
    image_id: Annotated[str, Schema("The image that the instance runs.")] = field(default="", name="imageID")
    capacity: Annotated[Amounts, Schema("Total resources of the node.")] = field(default_factory=dict)
    allocatable: Annotated[Amounts, Schema("Resources of the node that are available to pods.")] = field(
        default_factory=dict
    )
    conditions: Annotated[
        tuple[Condition, ...], Schema("Progress of the NodeClaim.", items=Schema(like=RelaxedCondition))
    ] = ()
    last_pod_event_time: Annotated[
        datetime | None, Schema("Time of the last pod that was added to or removed from the node.")
    ] = None


class NodeClaim(Object, frozen=True, kw_only=True):
    """karpenter.sh/v1 NodeClaim: one node that is wanted, being made, or there."""

    api_version: str = field(default_factory=lambda: API_VERSION)
    kind: str = field(default_factory=lambda: "NodeClaim")
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[NodeClaimSpec, Schema("Requirements of the requested node.", required=True)]
    status: NodeClaimStatus = NodeClaimStatus()

    @property
    def name(self) -> str:
        """Its name; claims have no namespace."""
        return self.metadata.name

    @property
    def pool(self) -> str:
        """Name of its NodePool, "" for one that stands alone."""
        return self.metadata.labels.get(names.NODEPOOL_LABEL, "")


def grace_of(claim: NodeClaim, longest: timedelta | None) -> timedelta | None:
    """How long the drain of a claim's Node may take; None for no end, also where the claim's own period cannot be read.

    Args:
        claim: whose own period counts where it has one.
        longest: the period of a claim without; None is no end.
    """
    try:
        return parse_duration(text) if (text := claim.spec.termination_grace_period) else longest
    except DurationError:
        return None
