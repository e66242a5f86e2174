"""Texts that `apis` makes and others publish, by the module that uses them; docs/reference/messages.md is generated from here. Pure."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

# validation.py: errors of NodePools, in `dovetail lint`, the validating webhook and the condition ValidationSucceeded


def name_is_limited(longest_name: int) -> str:
    """Ends `name_too_long`; in characters."""
    return f"which is limited to {longest_name} characters; use a shorter name"


def not_a_qualified_name(path: str, key: str) -> str:
    """`path` is that of the map, `key` the label key in it."""
    return f'{path}: "{key}" is not a qualified name such as example.com/team'


def name_too_long(path: str, length: int, key: str, limit: str) -> str:
    """`key` is the label with the name, `limit` what `name_is_limited` says."""
    return f"{path}: {length} characters, but every node has it as the value of label {key}, {limit}"


def not_a_label_value(path: str, value: str) -> str:
    """`path` is that of the label."""
    return f'{path}: "{value}" is not a label value; use letters, digits, "-", "_" and "."'


def label_is_restricted(path: str, key: str) -> str:
    """`path` is that of the label or requirement, `key` its key."""
    return f"{path}: {key} is restricted; use a domain of your own or one of the well-known labels"


def taint_key_invalid(where: str, key: str) -> str:
    """`where` is the path of the taint."""
    return f'{where}.key: "{key}" is not a qualified name such as example.com/team'


def taint_value_invalid(where: str, value: str) -> str:
    """`where` is the path of the taint."""
    return f'{where}.value: "{value}" is not a taint value'


def taint_effect_invalid(where: str, effect: str, known: str) -> str:
    """`where` is the path of the taint, `known` the effects that there are."""
    return f'{where}.effect: "{effect}" is none of {known}'


def taint_key_reserved(where: str, key: str) -> str:
    """The path and the key of a taint."""
    return (
        f"{where}.key: {key} is reserved: Dovetail sets and removes taints of this domain itself, so nodes would never be initialized, "
        "or would be closed to pods; use another domain"
    )


def taint_listed_twice(key: str, effect: str) -> str:
    """The key and effect of a taint."""
    return f"spec.template.spec: taint {key}:{effect} is listed twice in taints and startupTaints"


def too_few_values(path: str, wanted: int, listed: int) -> str:
    """`path` is that of the requirement, `wanted` its minValues."""
    return f"{path}.minValues: {wanted} required, but only {listed} values are listed"


def invalid_limits(error: Exception) -> str:
    """`error` says which resource and amount."""
    return f"spec.limits: {error}"


def schedule_without_duration(path: str) -> str:
    """`path` is that of the budget."""
    return f"{path}: schedule and duration must be set together"


def value_not_a_label_value(path: str, value: str) -> str:
    """`path` is that of the requirement."""
    return f'{path}.values: "{value}" is not a label value'


def no_capacity_type(path: str, values: str) -> str:
    """`path` is that of the requirement, `values` its values."""
    return f"{path}.values: none of {values} is a capacity type; use on-demand, spot or reserved"


def too_few_capacity_types(path: str, wanted: int, listed: int) -> str:
    """`path` is that of the requirement, `wanted` its minValues."""
    return f"{path}.minValues: {wanted} required, but only {listed} known capacity types are listed"


# pool_limits.py


def not_a_number_of_pods(key: str, value: str) -> str:
    return (
        f"metadata.annotations[{key}]: {value!r} is not a whole number from 1 to 9999; remove the annotation "
        "for any number of pods"
    )


def not_an_amount_of_money(key: str, value: str) -> str:
    return (
        f"metadata.annotations[{key}]: {value!r} is not a decimal number above 0, such as 12.5; to launch no "
        "nodes, set a limit of 0 on cpu"
    )


# advice.py: warnings of `dovetail lint` and of the validating webhook
DRIFT_NEVER_ALLOWED: Final = (
    "the budgets allow 0 nodes at all times for Drifted: nodes are never replaced after the NodePool or "
    "its node class changes"
)
NO_INSTANCE_CAN_BE_LAUNCHED: Final = "no instance can be launched"


def alias_selects_every_image(alias: str, family: str) -> str:
    """An alias that ends in @latest, and its family."""
    return (
        f"{alias} selects every new image: nodes drift and are replaced as soon as AWS publishes one; in "
        f"production, pin a version ({family}@v...)"
    )


SELECTS_NO_TYPE: Final = "selects no instance type"
OVERLAY_WITHOUT_EFFECT: Final = "has no effect; set price, priceAdjustment or capacity"
REQUIREMENTS_AND_LABELS: Final = "requirements and labels"


def no_type_has_label(key: str, hint: str) -> str:
    """`hint` begins with "; " or is empty."""
    return f"no known instance type has the label {key}{hint}"


BUDGET_WITHOUT_REASONS: Final = (
    "this budget has no effect because its list of reasons is empty; omit reasons to apply it to every reason"
)


AT_ANY_TIME: Final = "at any time"


def at_times_such_as(instant: str) -> str:
    """`instant` is in UTC."""
    return f"at some times, such as {instant} UTC"


def no_budget_applies(reasons: str, when: str) -> str:
    """`reasons` are those of budgets."""
    return (
        f"no budget applies to {reasons} {when}: all nodes of the NodePool may be disrupted at once then; "
        "add a budget without schedule and reasons"
    )


SELECTS_BY_NOTHING: Final = {
    "amiSelectorTerms": (
        "every field of this term except the owner is empty, so it selects all images of the owner, or nothing if it names none; "
        "fill in tags, name, id, alias or ssmParameter"
    ),
    "subnetSelectorTerms": "every field of this term is empty, so it selects nothing; fill in tags or id",
    "securityGroupSelectorTerms": "every field of this term is empty, so it selects nothing; fill in tags, id or name",
    "capacityReservationSelectorTerms": (
        "every field of this term except the owner is empty, so it selects all capacity reservations; fill in tags, id or instanceMatchCriteria"
    ),
}
"""By the list that holds the term."""


def consolidation_never_allowed(after: str, reasons: str) -> str:
    """`after` is consolidateAfter, `reasons` are those that consolidation has."""
    return (
        f"consolidation is enabled (consolidateAfter {after}), but the budgets allow 0 nodes at all times for "
        f"{reasons}; raise or schedule the budget, or set consolidateAfter to Never"
    )


def requirements_contradict(consequence: str, key: str) -> str:
    """`consequence` is what follows for the object, such as `NO_INSTANCE_CAN_BE_LAUNCHED`."""
    return f"{consequence}: the requirements for {key} contradict each other"


def pool_contradicts_itself(both: str, key: str) -> str:
    """`both` names what contradicts each other, such as `REQUIREMENTS_AND_LABELS`."""
    return f"no pod can use this NodePool: its {both} for {key} contradict each other"


def min_values_unreachable(wanted: int, key: str, count: int, values: str) -> str:
    """`wanted` is minValues; `values` are the `count` values that there are."""
    return (
        f"requires {wanted} values of {key}, but the requirements allow only {count} ({values}); no instance "
        "can be launched unless --min-values-policy=BestEffort is set"
    )


def limit_below_smallest_node(limit: object, text: str) -> str:
    """`limit` is the amount, `text` what the smallest node has of the resource."""
    return (
        f"no pod can use this NodePool: the limit of {limit} is smaller than its smallest node ({text}); "
        "raise the limit"
    )


BUDGET_NEVER_ACTIVE: Final = "this budget is never active because its duration is zero"


def shadowed_by_pool(name: str, weight: int) -> str:
    """The NodePool that is tried first, with its weight."""
    return (
        f"NodePool {name} (weight {weight}) is tried first and accepts every pod that this one accepts; give "
        "this one the higher weight, or the other one limits, taints or requirements"
    )


def pool_without_nodes(requirement: object, domains: str, hint: str) -> str:
    """`domains` are the values that nodes have for the requirement's key; `hint` begins with "; " or is empty."""
    return f"no pod can use this NodePool: {requirement}, but nodes have {domains}{hint}"


# verdicts.py: of `dovetail lint` and the validating webhook


def not_a_node_class(kind: str, group: str) -> str:
    """Of a nodeClassRef."""
    return f'"{kind}" of {group} is not a node class of Dovetail'


def shadows_pools(pools: str, which: str) -> str:
    """`pools` are names; `which` refers to them."""
    return (
        f"tried before {pools}, and accepts every pod that {which} accepts; lower this weight, or give this "
        "NodePool limits, taints or requirements"
    )


def other_group_has_kind(group: str, kind: str, meant: str) -> str:
    """Of a nodeClassRef; `meant` is the group that has the kind."""
    return f'"{group}" has no {kind}; did you mean {meant}?'


def no_nodes_for_it(text: str) -> str:
    """`text` is another problem of the reference."""
    return f"{text}; Dovetail launches no nodes for it"


# plan.py


def plan_text_too_long(limit: int, size: int) -> str:
    return f"the plan has {size} bytes; the maximum is {limit}"


def unknown_plan_version(version: int, known: int) -> str:
    return f"the plan has version {version}; this program reads version {known}"


def not_a_plan(error: Exception) -> str:
    return f"not a plan: {error}"


def plan_hold_is_no_time(seconds: float) -> str:
    return f"holdSeconds is {seconds:g}; it must be a finite number of seconds, 0 or more"


def plan_time_has_no_zone(at: datetime) -> str:
    """The time of a plan is no instant."""
    return f"plannedAt is {at.isoformat()}, without a time zone"


def plan_time_is_too_late(at: datetime) -> str:
    """The next plan is dated after it, at least."""
    return f"plannedAt is {at.isoformat()}, too late: no plan could be made after it"


def plan_entry_contradicts(position: int, count: int, uids: int) -> str:
    return f"pods[{position}]: count {count} with {uids} uids"


# command.py


def command_too_long(size: int, limit: int) -> str:
    return f"the record of the command has {size} bytes, more than the limit of {limit} for an annotation"


# conversion/beta.py


def cannot_be_converted(name: str, given: object, kind: str, version: str) -> str:
    return f"{name}: {given} {kind} cannot be converted to {version}"


def no_other_version(name: str, version: object, kind: object) -> str:
    return f"{name}: {version} {kind} has no other version"


def kept_fields_do_not_fit(name: str, problems: str, key: str, version: str) -> str:
    return (
        f"{name}: {problems}: the annotation {key} keeps fields of {version} that do not go with the rest; "
        f"edit the object at {version}, or remove the annotation"
    )


# conversion/alpha.py: after the path of a field: what became of it, or why it has to be changed; `dovetail convert` and the translated object show it
DEFAULT_PROFILE_REQUIRED: Final = (
    "is required: Karpenter's setting aws.defaultInstanceProfile has no equivalent; name the instance "
    "profile of the nodes"
)
NO_DRIFT_BEFORE: Final = (
    "that version did not replace drifted nodes, so the budget for the reason Drifted is 0; for the other "
    "reasons it is 10%"
)


def became_expire_after(seconds: int) -> str:
    """Of ttlSecondsUntilExpired."""
    return f"became expireAfter {seconds}s; expired nodes are drained regardless of budgets and do-not-disrupt"


NO_CONSOLIDATION: Final = "neither ttlSecondsAfterEmpty nor consolidation: consolidateAfter Never"
DEFAULTS_WRITTEN_OUT: Final = "written out with that version's defaults"


def became_node_class_ref(class_name: str) -> str:
    """Of providerRef."""
    return f"became nodeClassRef to EC2NodeClass {class_name}"


def became_kubelet(class_name: str) -> str:
    """Of kubeletConfiguration."""
    return f"became spec.kubelet of EC2NodeClass {class_name}, which only this NodePool uses"


BECAME_LIMITS: Final = "became spec.limits"


def default_requirements(category: str, generation: str) -> str:
    """The label keys of two requirements that were added."""
    return f"{category} In [c, m, r] and {generation} Gt 2 were that version's defaults"


NO_EXPIRATION: Final = "is absent: expireAfter Never"
BECAME_UNDERUTILIZED: Final = "became consolidationPolicy WhenEmptyOrUnderutilized, consolidateAfter 0s"


def became_when_empty(seconds: str) -> str:
    """Of ttlSecondsAfterEmpty."""
    return f"became consolidationPolicy WhenEmpty, consolidateAfter {seconds}s"


def became_annotation(key: str) -> str:
    """The key of the annotation that says it at v1."""
    return f"became {key}"


def annotation_without_effect(key: str) -> str:
    """The key of the annotation that says it at v1."""
    return f"has no effect at v1; use {key}"


NO_CONTAINER_RUNTIME: Final = "has no equivalent: every node runs containerd"
NO_LAUNCH_TEMPLATE: Final = "has no equivalent; set its contents in the fields of an EC2NodeClass"
DEFAULT_AL2: Final = "AL2 was that version's default; there are no AL2 images for Kubernetes 1.33 and later"


def family_removed(family: str, known: str) -> str:
    """`known` are the families that there are."""
    return f'"{family}" has no equivalent; use one of {known}'


BECAME_AMI_TERMS: Final = "became amiSelectorTerms"
IDS_WITH_TAGS: Final = "IDs cannot be combined with tags; use one of them"


def too_many_terms(count: int, most: int) -> str:
    """Of a selector whose values are lists."""
    return f"its values separated by commas make {count} terms; the maximum is {most}"


def became_node_class(class_name: str) -> str:
    """Of an AWSNodeTemplate or a provider."""
    return f"became EC2NodeClass {class_name}"


def name_longer_than(length: int, limit: int) -> str:
    """In characters."""
    return f"has {length} characters; the maximum is {limit}, as nodes have a label with it"


def default_requirement(key: str, value: str) -> str:
    """The key and value of a requirement that was added."""
    return f"{key} In [{value}] was that version's default"


def container_runtime_removed(runtime: str) -> str:
    """Of kubeletConfiguration.containerRuntime."""
    return f'"{runtime}" has no equivalent; remove it, every node runs containerd'


AMI_TERMS_REQUIRED: Final = "is required with amiFamily Custom"


def became_alias(alias: str) -> str:
    """Of amiFamily."""
    return f"became amiSelectorTerms with the alias {alias}"


VALUE_IS_EMPTY: Final = 'must not be empty; "*" means any value'
IDS_WITH_NAMES: Final = "IDs cannot be combined with names or owners; use one of them"


def template_not_there(of: str) -> str:
    """`of` is the name in a Provisioner's providerRef."""
    return f'AWSNodeTemplate "{of}" does not exist; kubeletConfiguration needs a copy of it'


def selector_is_absent(what: str, tag: str) -> str:
    """`what` are subnets or security groups."""
    return f"is absent: {what} with the tag {tag}"


def selector_needs_cluster_name(what: str, prefix: str) -> str:
    """Likewise; `prefix` is the tag key up to the name of the cluster."""
    return f"is absent and selects the {what} with the tag {prefix}<name>; name the cluster with --cluster-name"


# openapi.py: after the path of a field: what its schema refuses, in `dovetail lint` and where old versions are converted
REQUIRED: Final = "is required"


def not_of_type(accepted: str, got: str, quotes: str) -> str:
    """`accepted` and `got` are types; `quotes` is advice about quotation marks, or empty."""
    return f"must be {accepted}, not {got}{quotes}"


def not_supported(value: str, known: str, hint: str) -> str:
    """`known` are the values that there are; `hint` suggests one, or is empty."""
    return f"{value} is not supported; use one of {known}{hint}"


def repeated(values: str) -> str:
    """`values` are shown as in JSON."""
    return f"{values} must not be repeated"


def too_many_entries(count: int, most: str) -> str:
    """`most` is the maximum."""
    return f"has {count} entries; the maximum is {most}"


def unknown_field(hint: str) -> str:
    """`hint` suggests a field, or is empty."""
    return f"unknown field{hint}"


def not_an_object(kind: str) -> str:
    """`kind` is the type of the value."""
    return f"must be an object, not {kind}"


def too_many_characters(count: int, most: str) -> str:
    """`most` is the maximum."""
    return f"has {count} characters; the maximum is {most}"


IS_EMPTY: Final = "must not be empty"


def no_rfc3339_time(value: str) -> str:
    """`value` is shown as in JSON."""
    return f"{value} is not an RFC 3339 time such as 2026-01-31T12:00:00Z"


def below_minimum(value: object, minimum: str) -> str:
    """`minimum` comes from the schema."""
    return f"{value} is less than the minimum {minimum}"


def above_maximum(value: object, maximum: str) -> str:
    """`maximum` comes from the schema."""
    return f"{value} is more than the maximum {maximum}"


def out_of_range(value: object, kind: str) -> str:
    """`kind` is the integer type."""
    return f"{value} is out of range for {kind}"


def not_a_string(kind: str, value: str) -> str:
    """`kind` is the type of the value."""
    return f'must be a string, not {kind}; write "{value}" in quotes'


KEY_NOT_QUALIFIED: Final = "the key is not a qualified name such as example.com/team"


def is_not(value: str, wanted: str) -> str:
    """`wanted` says what is expected."""
    return f"{value} is not {wanted}"


def does_not_match(value: str, pattern: str) -> str:
    """`pattern` comes from the schema."""
    return f"{value} does not match {pattern}"


def not_a_name(name: str, rest: str) -> str:
    """`rest` says what a name may contain."""
    return f"{name} is not a name; use {rest}"


def not_a_valid_label_value(value: str) -> str:
    """`value` is shown as in JSON."""
    return f"{value} is not a valid label value"


# reports.py


def body_too_long(most: int, size: int) -> str:
    return f"the body has {size} bytes; the maximum is {most}"


def too_many_reports(most: int, count: int) -> str:
    return f"the body has {count} reports; the maximum is {most}"


def not_reports(error: Exception) -> str:
    return f"not reports: {error}"


def report_uid_invalid(position: int, length: int, most: int) -> str:
    return f"reports[{position}].uid has {length} characters; it must have 1 to {most}"


def report_node_too_long(position: int, length: int, most: int) -> str:
    return f"reports[{position}].node has {length} characters; the maximum is {most}"


# shares.py


def not_a_share(text: str) -> str:
    return f"{text!r} is neither a percentage from 0% to 100% nor a number of pods"


# footprint.py


def keeps_too_much(most: int) -> str:
    """Why an object that somebody wrote is ignored."""
    return f"it takes more than {most} KiB of memory, more than is kept of any object"


# shapes.py


def says_too_much(most: int) -> str:
    """Why a pod gets no new node."""
    return (
        f"the labels, resource names and constraints of the pod take more than the {most} KiB that are kept of a pod; "
        "shorten them to have a node launched for it"
    )


# selections.py


def too_many_elements(where: str, count: int, most: int) -> str:
    """What is wrong with a pod or DaemonSet."""
    return f"{where}: has {count} elements; pods with at most {most} are planned"


def too_many_expressions(where: str, count: int, total: int, most: int) -> str:
    """What is wrong with a pod or DaemonSet."""
    return (
        f"{where}: has {count} of the {total} expressions in the pod's selectors; pods with at most {most} are planned"
    )


def too_many_values(where: str, count: int, total: int, most: int) -> str:
    """What is wrong with a pod or DaemonSet."""
    return f"{where}: has {count} of the {total} values in the pod's selectors; pods with at most {most} are planned"


# verdicts.py, and cloudprovider/overlays.py: why a NodeOverlay is not applied


def overlays_conflict(other: str) -> str:
    """`other` is the name of the NodeOverlay that it contradicts."""
    return f'NodeOverlay "{other}" of the same weight changes the same instance types; give one of them another weight'


def overlays_may_conflict(other: str) -> str:
    """`other` is the name of the NodeOverlay that it may contradict."""
    return (
        f'NodeOverlay "{other}" of the same weight changes every instance type that both select, and then one of them '
        "is not applied; give one of them another weight"
    )


# templates.py: why the API server creates no pod of a template, in conditions of CapacityBuffers and in `dovetail plan`


def overhead_differs(name: str) -> str:
    """`name` is the RuntimeClass."""
    return f"spec.overhead differs from that of RuntimeClass {name}; leave it out"


def selector_differs(name: str, key: str, value: str, given: str) -> str:
    """`name` is the RuntimeClass, `value` what it selects, `given` what the pod selects."""
    return f"RuntimeClass {name} selects nodes with {key}={value}, but spec.nodeSelector has {key}={given}; remove one of them"


OVERHEAD_WITHOUT_CLASS: Final = "spec.overhead is set, but no RuntimeClass of the pod defines one; leave it out"


# unknown fields of watched objects


def unknown_fields_ignored(kind: str, paths: Sequence[str]) -> str:
    """Of a NodePool or EC2NodeClass that a newer version wrote."""
    return (
        f"This version of Dovetail does not know {', '.join(paths)}: new nodes of this {kind} do without, and a change of the {kind} replaces "
        "no node because of its hash. Upgrade Dovetail, or remove the fields"
    )


# stamping.py: warnings about pods, from the webhook
STAMPED_FOR_IMAGES: Final = "architectures of the images"

IMAGES_HAVE_NO_COMMON_ARCHITECTURE: Final = (
    "dovetail: the images of the pod have no architecture in common, so no node can run all of its containers. "
    "kubernetes.io/arch was not stamped"
)

ANNOTATIONS_TOO_LARGE: Final = (
    "dovetail: the annotations of the pod are too large for the record of the changes. The pod was not changed"
)

PODS_ARE_NOT_COUNTED: Final = "the webhook is not counting pods (--on-demand-shares)"

NO_CONTROLLER_WITH_A_SHARE: Final = "no ReplicaSet, StatefulSet or Job controls the pod"

CAPACITY_TYPE_IS_SET: Final = "karpenter.sh/capacity-type is set for the pod already"


def switch_not_supported(setting: str, stamp: str) -> str:
    """A warning about a switch whose value is not known."""
    return f"dovetail: {setting} is not supported; use enabled or disabled. {stamp} was not set"


def list_too_long(count: int, what: str, most: int) -> str:
    """A warning about a pod that would not be planned anyway."""
    return f"dovetail: the pod has {count} {what}; pods with at most {most} are planned. The pod was not changed; remove some"


def setting_too_long(place: str, count: int, limit: int, label: str) -> str:
    """A warning about a setting with a long list."""
    return f"dovetail: {place} holds {count} values, more than the limit of {limit}: {label} was not stamped"


def too_many_deprecated(limit: int) -> str:
    """A warning about a pod of which too much would be rewritten."""
    return f"dovetail: the pod uses deprecated labels in more than {limit} places. No label was rewritten; replace them in the pod"


def opt_out_not_supported(setting: str) -> str:
    """A warning about an opt-out whose value is not known."""
    return f"dovetail: {setting} is not supported; use enabled or disabled. The pod was not changed"


def values_not_supported(setting: str, held: str, expected: str, label: str) -> str:
    """A warning about values that a label cannot have."""
    return f"dovetail: {setting} holds {held}, want {expected}: {label} was not stamped"


def other_operating_system(setting: str, own_os: str, label: str) -> str:
    """A warning about a setting that no node of the pod's operating system fulfils."""
    return f"dovetail: {setting}, but the pod's own spec is for {own_os}: {label} was not stamped"


def share_not_applied(setting: str, problem: str) -> str:
    """A warning about a share of pods on demand."""
    return f"dovetail: {setting}: {problem}. The share was not applied"


def _repair(value: str) -> str:
    return f"annotation dovetail.dev/on-demand-repair of the pod: {value!r}"


def repair_not_supported(value: str, known: str) -> str:
    """A warning about a way of repairing a share that is not known."""
    return f"dovetail: {_repair(value)} is not supported; use {known}"


def repair_of_jobs(value: str) -> str:
    """A warning about the repair of a share of a Job's pods."""
    return f"dovetail: {_repair(value)} has no effect on pods of Jobs, which are never evicted for it"


def repair_without_share(value: str) -> str:
    """A warning about the repair of a share that the pod itself does not ask for."""
    return f"dovetail: {_repair(value)} requires the annotation dovetail.dev/on-demand of the pod as well"


def pool_does_not_exist(setting: str, pool: str) -> str:
    """A warning about a NodePool whose taints would be tolerated."""
    return f"dovetail: {setting}; NodePool {pool} does not exist, so no toleration was added for it"


def too_many_taints(setting: str, count: int, limit: int) -> str:
    """A warning about NodePools with more taints than a pod is given tolerations for."""
    return f"dovetail: {setting}: the NodePools have {count} taints, more than the limit of {limit}. No toleration was added"


def spread_not_supported(setting: str) -> str:
    """A warning about a spread that is not known."""
    return f"dovetail: {setting} is not supported; use zone. No topology spread constraint was added"


def spread_without_label(setting: str) -> str:
    """A warning about a spread of a pod without labels."""
    return f"dovetail: {setting} requires a label that the replicas of the pod share. No topology spread constraint was added"


def legacy_not_supported(setting: str) -> str:
    """A warning about a way to treat deprecated labels that is not known."""
    return f"dovetail: {setting} is not supported; use rewrite or keep. No label was rewritten"


def deprecated(old: str, new: str) -> str:
    """A warning about a label that was rewritten."""
    return f"dovetail: {old} is deprecated, use {new}"


def selectors_contradict(old: str, old_value: str, new: str, new_value: str) -> str:
    """A warning about a deprecated label and its successor with other values."""
    return (
        f"dovetail: nodeSelector asks for {old}={old_value} and {new}={new_value}: "
        f"the values contradict each other, so {old} was not changed"
    )


def spread_has_both(old: str, new: str) -> str:
    """A warning about spread constraints over a deprecated label and its successor."""
    return f"dovetail: topologySpreadConstraints contains both {old} and {new}, so {old} was not changed"


def image_arch_not_supported(setting: str) -> str:
    """A warning about a value that is not known."""
    return f"dovetail: {setting} is not supported; use stamp, gate or disabled. kubernetes.io/arch was not stamped"


def images_are_not_looked_up(setting: str) -> str:
    """A warning about a setting that needs a flag."""
    return f"dovetail: {setting}: the webhook is not looking up images (--image-registries). kubernetes.io/arch was not stamped"
