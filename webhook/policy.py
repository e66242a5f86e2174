"""A MutatingAdmissionPolicy that stamps what CEL can stamp, inside the API server and without a call: pure functions, compared with the manifests.

It has the settings, the levels and the record of `provisioner.apis.stamping`, so pods look alike whichever of the two was there, and both together do
what one does. The policy comes first (the API server asks policies before webhooks); the webhook then adds what is left to it.

Left to the webhook, because a policy cannot know it or say it: the scheduler (no Lease in CEL), tolerations of NodePools (one parameter object
only), shares on demand (it counts no pods), deprecated labels, and warnings for values that are not supported, which stamp nothing here as there.

Values of patches are made of maps and texts alone: kube-apiserver 1.36 panics on a list of `Object` values, 1.37 cannot write elements of
the pod's own lists.

Source: https://kubernetes.io/docs/reference/access-authn-authz/mutating-admission-policy/ (v1 since Kubernetes 1.36).
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from provisioner.apis import names, selections, stamping
from provisioner.apis.selections import REQUIRED
from webhook import registration

POLICY_NAME: Final = "dovetail-stamping"
API_VERSION: Final = "admissionregistration.k8s.io/v1"

_REQUIRED_PATH = f"/spec/affinity/nodeAffinity/{REQUIRED}"
_KEYS_BYTES: Final = 256
"""More than the keys and the short values of our annotations have."""


def policy() -> dict[str, Any]:
    """The policy; with `binding` it stamps pods, alone it does nothing."""
    return _document(
        "MutatingAdmissionPolicy",
        {
            "failurePolicy": "Ignore",
            "reinvocationPolicy": "IfNeeded",
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "matchConstraints": {
                "matchPolicy": "Equivalent",
                "namespaceSelector": registration.namespace_selector(names.OWN_NAMESPACE),
                "objectSelector": {},
                "resourceRules": registration.pod_rules(),
            },
            "matchConditions": [
                {"name": name, "expression": expression}
                for name, expression in (*registration.MATCH_CONDITIONS, ("not-of-another-scheduler", _OURS))
            ],
            "variables": [{"name": name, "expression": expression} for name, expression in _variables()],
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": _PATCH}}],
        },
    )


def binding() -> dict[str, Any]:
    """What puts the policy to work, with the ConfigMap of defaults; without that ConfigMap nothing is stamped."""
    defaults = {
        "name": names.DEFAULTS_CONFIGMAP,
        "namespace": names.OWN_NAMESPACE,
        "parameterNotFoundAction": "Allow",
    }
    return _document("MutatingAdmissionPolicyBinding", {"policyName": POLICY_NAME, "paramRef": defaults})


def _document(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": POLICY_NAME, "labels": {"app.kubernetes.io/name": "dovetail"}}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


# --- CEL ------------------------------------------------------------------------------------------------------------

_SCHEDULERS = ["", names.DEFAULT_SCHEDULER_NAME, names.SCHEDULER_NAME]
_OURS = f"!has(object.spec.schedulerName) || object.spec.schedulerName in {_SCHEDULERS!r}"


def _name(setting: stamping.AffinitySetting) -> str:
    return setting.name.title().replace("-", "")


def _aliases(label: str) -> list[str]:
    """Every name under which a pod may speak about a label."""
    return [label, *sorted(old for old in stamping.DEPRECATED_LABELS if stamping.renamed_label(old) == label)]


def _value(key: str) -> str:
    """A setting's words: the pod's, else the namespace's, else the cluster's."""
    name = key.removeprefix(stamping.PREFIX)
    return (
        f"'{key}' in variables.annotations ? string(variables.annotations['{key}']).trim()"
        f" : '{key}' in variables.namespaceLabels ? string(variables.namespaceLabels['{key}'])"
        f" : '{name}' in variables.defaults ? string(variables.defaults['{name}']).trim() : ''"
    )


def _level(key: str) -> str:
    return (
        f"('{key}' in variables.annotations ? 'pod' : '{key}' in variables.namespaceLabels ? 'namespace' : 'cluster')"
    )


def _worded(text: str) -> str:
    """In the bounded words of the record."""
    longest = stamping.LONGEST_WORDS
    return f"(size({text}) <= {longest} ? {text} : {text}.substring(0, {longest - 3}) + '...')"


def _any_label(labels: Iterable[str], where: str) -> str:
    return f"{list(labels)!r}.exists(k, k in {where})"


def _missing(setting: stamping.AffinitySetting, term: str) -> str:
    """The values that a term should ask for; an empty list where it is left alone."""
    values = f"variables.values{_name(setting)}"
    speaks = f"has({term}.matchExpressions) && {term}.matchExpressions.exists(e, e.key in {_aliases(setting.label)!r})"
    pinned = f"has({term}.matchFields) && {term}.matchFields.exists(f, f.key == 'metadata.name' && f.operator == 'In')"
    empty = (
        f"(!has({term}.matchExpressions) || size({term}.matchExpressions) == 0)"
        f" && (!has({term}.matchFields) || size({term}.matchFields) == 0)"
    )
    os = _aliases(names.OS_LABEL)
    windows = (
        f"(has({term}.matchExpressions) && {term}.matchExpressions.exists(e,"
        f" (e.key in {_aliases(names.WINDOWS_BUILD_LABEL)!r} && e.operator in ['In', 'Exists'])"
        f" || (e.key in {os!r} && e.operator == 'In' && e.values == ['windows'])))"
    )
    single = f"e.key in {os!r} && e.operator == 'In' && has(e.values) && size(e.values) == 1"
    if setting.label == names.OS_LABEL:
        fitting = (
            f"({windows} ? {values}.filter(v, v == 'windows')"
            f" : has({term}.matchExpressions) && {term}.matchExpressions.exists(e, {single})"
            f" ? {values}.filter(v, {term}.matchExpressions.exists(e, {single} && e.values[0] == v)) : {values})"
        )
    elif setting.label == names.ARCH_LABEL:
        fitting = f"({windows} ? {values}.filter(v, v == 'amd64') : {values})"
    else:
        fitting = values
    return f"(({empty}) || ({pinned}) || ({speaks}) ? [] : {fitting})"


def _expression(setting: stamping.AffinitySetting, values: str) -> str:
    return f"{{'key': dyn('{setting.label}'), 'operator': dyn('In'), 'values': dyn({values})}}"


def _variables() -> Iterator[tuple[str, str]]:
    yield "annotations", "has(object.metadata.annotations) ? object.metadata.annotations : {}"
    yield "labels", "has(object.metadata.labels) ? object.metadata.labels : {}"
    yield "namespaceLabels", "has(namespaceObject.metadata.labels) ? namespaceObject.metadata.labels : {}"
    yield "defaults", "params != null && has(params.data) ? params.data : {}"
    yield "selector", "has(object.spec.nodeSelector) ? object.spec.nodeSelector : {}"
    switch = names.STAMP_SWITCH
    yield (
        "optedOut",
        (
            f"[('{switch}' in variables.labels ? string(variables.labels['{switch}']) : ''),"
            f" ('{switch}' in variables.annotations ? string(variables.annotations['{switch}']).trim() : ''),"
            f" ('{switch}' in variables.namespaceLabels ? string(variables.namespaceLabels['{switch}']) : ''),"
            " ('stamp' in variables.defaults ? string(variables.defaults['stamp']).trim() : '')]"
            ".exists(v, !(v in ['', 'enabled']))"
        ),
    )
    affinity = "has(object.spec.affinity)"
    node_affinity = f"{affinity} && has(object.spec.affinity.nodeAffinity)"
    yield "hasTerms", f"{node_affinity} && has(object.spec.affinity.nodeAffinity.{REQUIRED})"
    yield "terms", f"variables.hasTerms ? object.spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms : []"
    windows = (
        "has({0}.securityContext) && has({0}.securityContext.windowsOptions)"
        " && size({0}.securityContext.windowsOptions) > 0"
    )
    yield (
        "windowsOptions",
        (
            f"({windows.format('object.spec')}) || object.spec.containers.exists(c, {windows.format('c')})"
            f" || (has(object.spec.initContainers) && object.spec.initContainers.exists(c, {windows.format('c')}))"
        ),
    )
    os = _aliases(names.OS_LABEL)
    yield (
        "os",
        (
            "has(object.spec.os) && has(object.spec.os.name) && object.spec.os.name != '' ? string(object.spec.os.name)"
            f" : variables.windowsOptions || {_any_label(_aliases(names.WINDOWS_BUILD_LABEL), 'variables.selector')} ? 'windows'"
            f" : {_any_label(os, 'variables.selector')}"
            f" ? string(variables.selector[{os!r}.filter(k, k in variables.selector)[0]]) : ''"
        ),
    )
    for setting in stamping.AFFINITY_SETTINGS:
        yield from _of_setting(setting)
    yield "spread", _value(names.STAMP_SPREAD)
    yield (
        "shared",
        f"variables.labels.transformMap(k, v, !(k in {sorted(stamping.NOT_OF_BROTHERS)!r}), v)",
    )
    zones = _aliases(names.ZONE_LABEL)
    yield (
        "spreads",
        (
            "variables.spread == 'zone' && size(variables.shared) > 0 && (!has(object.spec.topologySpreadConstraints)"
            f" || !object.spec.topologySpreadConstraints.exists(c, c.topologyKey in {zones!r}))"
        ),
    )
    owned = "has(object.metadata.ownerReferences)"
    of_job = "o.kind == 'Job' && o.apiVersion.startsWith('batch/') && has(o.controller) && o.controller"
    yield "jobs", f"{owned} ? object.metadata.ownerReferences.filter(o, {of_job}) : []"
    yield "protectJobs", _value(names.STAMP_PROTECT_JOBS)
    yield (
        "protects",
        (
            "variables.protectJobs == 'enabled' && size(variables.jobs) > 0"
            f" && !('{names.DO_NOT_DISRUPT}' in variables.annotations)"
        ),
    )
    yield "entries", " + ".join(_entries())
    yield (
        "record",
        (
            f"('{names.STAMPED_ANNOTATION}' in variables.annotations"
            f" ? string(variables.annotations['{names.STAMPED_ANNOTATION}']) : '')"
        ),
    )
    known = (
        f"(size(variables.record) <= {stamping.LONGEST_RECORD} ? variables.record"
        f" : variables.record.substring(0, {stamping.LONGEST_RECORD})).split('; ').filter(e, e.matches({f'^{stamping.ENTRY_PATTERN}$'!r}))"
    )
    yield "recorded", known
    yield (
        "newRecord",
        (
            f"{sorted(stamping.STAMPS)!r}.map(s, (variables.entries + variables.recorded).filter(e, e.startsWith(s + '=')))"
            ".filter(l, size(l) > 0).map(l, l[0]).join('; ')"
        ),
    )
    size = "variables.annotations.transformList(k, v, size(bytes(k)) + size(bytes(string(v)))).sum()"
    yield (
        "room",
        f"{size} + size(bytes(variables.newRecord)) + {_KEYS_BYTES} <= {stamping.MAX_ANNOTATION_BYTES}",
    )
    yield "planned", " && ".join(_short_lists())
    yield "stamps", "!variables.optedOut && variables.planned && size(variables.entries) > 0 && variables.room"


def _short_lists() -> Iterator[str]:
    """That no list of the pod is too long for it to be planned."""
    most = selections.MOST_ELEMENTS
    yield f"size(variables.terms) <= {most}"
    for name in ("tolerations", "topologySpreadConstraints"):
        yield f"(!has(object.spec.{name}) || size(object.spec.{name}) <= {most})"
    for name in ("podAffinity", "podAntiAffinity"):
        where = f"object.spec.affinity.{name}"
        yield (
            f"(!has(object.spec.affinity) || !has({where}) || !has({where}.{REQUIRED})"
            f" || size({where}.{REQUIRED}) <= {most})"
        )


def _of_setting(setting: stamping.AffinitySetting) -> Iterator[tuple[str, str]]:
    name = _name(setting)
    yield f"raw{name}", _value(setting.key)
    parts = f"variables.raw{name}.replace('_', ',').split(',').map(p, p.trim()).filter(p, p != '')"
    yield f"parts{name}", parts
    known = setting.values
    if known:
        valid = f"variables.parts{name}.all(p, p in {list(known)!r})"
        ordered = f"{list(known)!r}.filter(v, v in variables.parts{name})"
    else:
        valid = f"variables.parts{name}.all(p, p.matches('^{stamping.NODEPOOL_NAME_PATTERN}$'))"
        valid += f" && size(variables.parts{name}.distinct()) <= {stamping.MAX_VALUES}"
        ordered = f"variables.parts{name}.distinct().sort()"
    if setting.label == names.OS_LABEL:
        ordered = f"{ordered}.filter(v, variables.os == '' || v == variables.os)"
    elif setting.label == names.ARCH_LABEL:
        ordered = f"{ordered}.filter(v, variables.os != 'windows' || v == 'amd64')"
    selects = _any_label(_aliases(setting.label), "variables.selector")
    yield f"values{name}", f"{valid} && !({selects}) ? {ordered} : []"
    yield f"missing{name}", f"variables.terms.map(t, {_missing(setting, 't')})"
    yield (
        f"wants{name}",
        f"size(variables.values{name}) > 0 && (!variables.hasTerms || variables.missing{name}.exists(m, size(m) > 0))",
    )


def _entries() -> Iterator[str]:
    """What this patch does, in the words of the record."""
    for setting in stamping.AFFINITY_SETTINGS:
        name = _name(setting)
        words = _worded(f"variables.values{name}.join(',')")
        yield f"(variables.wants{name} ? ['{setting.name}=' + {words} + ' (' + {_level(setting.key)} + ')'] : [])"
    yield f"(variables.spreads ? ['{stamping.SPREAD_STAMP}=zone (' + {_level(names.STAMP_SPREAD)} + ')'] : [])"
    plain = "variables.jobs[0].name.replace(';', '_').replace('(', '_').replace(')', '_')"
    why = _worded(f"('pod of Job ' + {plain})")
    yield (
        f"(variables.protects ? ['{stamping.PROTECT_STAMP}=true (' + {_level(names.STAMP_PROTECT_JOBS)} + ': ' + {why} + ')'] : [])"
    )


def _patches() -> Iterator[str]:
    wanted = " + ".join(
        f"(variables.wants{_name(one)} ? [{_expression(one, f'variables.values{_name(one)}')}] : [])"
        for one in stamping.AFFINITY_SETTINGS
    )
    any_wanted = " || ".join(f"variables.wants{_name(one)}" for one in stamping.AFFINITY_SETTINGS)
    required = f"{{'nodeSelectorTerms': [{{'matchExpressions': {wanted}}}]}}"
    node_affinity = f"{{'{REQUIRED}': {required}}}"
    yield (
        f"(variables.hasTerms || !({any_wanted}) ? []"
        f" : !has(object.spec.affinity) ? [JSONPatch{{op: 'add', path: '/spec/affinity', value: {{'nodeAffinity': {node_affinity}}}}}]"
        f" : !has(object.spec.affinity.nodeAffinity) ? [JSONPatch{{op: 'add', path: '/spec/affinity/nodeAffinity', value: {node_affinity}}}]"
        f" : [JSONPatch{{op: 'add', path: '{_REQUIRED_PATH}', value: {required}}}])"
    )
    terms = f"path: '{_REQUIRED_PATH}/nodeSelectorTerms/' + string(i) + '/matchExpressions"
    any_added = " || ".join(f"size(variables.missing{_name(one)}[i]) > 0" for one in stamping.AFFINITY_SETTINGS)
    yield (
        f"variables.terms.transformList(i, t, !has(t.matchExpressions) && ({any_added}),"
        f" JSONPatch{{op: 'add', {terms}', value: []}})"
    )
    for one in stamping.AFFINITY_SETTINGS:
        missing = f"variables.missing{_name(one)}[i]"
        yield (
            f"variables.terms.transformList(i, t, size({missing}) > 0,"
            f" JSONPatch{{op: 'add', {terms}/-', value: {_expression(one, missing)}}})"
        )
    constraint = (
        f"{{'maxSkew': dyn(1), 'topologyKey': dyn('{names.ZONE_LABEL}'), 'whenUnsatisfiable': dyn('ScheduleAnyway'),"
        " 'labelSelector': dyn({'matchLabels': variables.shared})}"
    )
    yield (
        f"(!variables.spreads ? [] : has(object.spec.topologySpreadConstraints)"
        f" ? [JSONPatch{{op: 'add', path: '/spec/topologySpreadConstraints/-', value: {constraint}}}]"
        f" : [JSONPatch{{op: 'add', path: '/spec/topologySpreadConstraints', value: [{constraint}]}}])"
    )
    key = "'/metadata/annotations/' + jsonpatch.escapeKey('{}')"
    yield "(has(object.metadata.annotations) ? [] : [JSONPatch{op: 'add', path: '/metadata/annotations', value: {}}])"
    yield f"(variables.protects ? [JSONPatch{{op: 'add', path: {key.format(names.DO_NOT_DISRUPT)}, value: 'true'}}] : [])"
    yield f"[JSONPatch{{op: 'add', path: {key.format(names.STAMPED_ANNOTATION)}, value: variables.newRecord}}]"


_PATCH = f"!variables.stamps ? [] : {' + '.join(_patches())}"
