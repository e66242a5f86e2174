"""The two webhook configurations: pure functions, used by `--register-url` and compared with the manifests."""

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from provisioner.apis import ec2, karpenter, names, overlay, stamping

CONFIGURATION_NAME = "dovetail-webhook"
HOOK_NAME = "pods.webhook.dovetail.dev"
VALIDATING_HOOK_NAME = "objects.webhook.dovetail.dev"
MUTATE_PATH = "/mutate"
VALIDATE_PATH = "/validate"
TIMEOUT_SECONDS = 2


def _not_opted_out_in(place: str) -> str:
    where = f"object.metadata.{place}"
    return (
        f"!has({where}) || !('{names.STAMP_SWITCH}' in {where})"
        f" || {where}['{names.STAMP_SWITCH}'] != '{stamping.DISABLED}'"
    )


_REQUIRED = "object.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
_PINNED = (
    "has(object.spec.affinity) && has(object.spec.affinity.nodeAffinity)"
    f" && has({_REQUIRED}) && size({_REQUIRED}.nodeSelectorTerms) > 0"
    f" && {_REQUIRED}.nodeSelectorTerms.all(t, has(t.matchFields)"
    " && t.matchFields.exists(f, f.key == 'metadata.name' && f.operator == 'In'))"
)
_OWNED_BY_A_DAEMONSET = (
    "has(object.metadata.ownerReferences) && has(object.metadata.generateName)"
    " && object.metadata.ownerReferences.exists(o, o.kind == 'DaemonSet' && o.apiVersion.startsWith('apps/')"
    " && has(o.controller) && o.controller && object.metadata.generateName == o.name + '-')"
)

# CEL, evaluated in the API server: what is excluded here never costs a call. An error in one of them skips the
# webhook, because the failure policy is Ignore.
MATCH_CONDITIONS = (
    ("not-bound", "!has(object.spec.nodeName) || object.spec.nodeName == ''"),
    (
        "not-static",
        f"!has(object.metadata.annotations) || !('{names.CONFIG_MIRROR}' in object.metadata.annotations)",
    ),
    ("not-of-a-daemonset", f"!({_OWNED_BY_A_DAEMONSET} && {_PINNED})"),
    (
        "not-opted-out-by-label",
        _not_opted_out_in("labels"),
    ),
    (
        "not-opted-out-by-annotation",
        _not_opted_out_in("annotations"),
    ),
)


def _is_set(key: str, which: str) -> str:
    return f"has({which}.metadata.annotations) && '{key}' in {which}.metadata.annotations"


def _changed_to(key: str) -> str:
    """Whether an annotation is there that was not, or with another value."""
    same = f"object.metadata.annotations['{key}'] == oldObject.metadata.annotations['{key}']"
    return f"({_is_set(key, 'object')} && !({_is_set(key, 'oldObject')} && {same}))"


VALIDATING_MATCH_CONDITIONS = (
    # labels, other annotations and finalizers are nobody's business here
    (
        "changes-the-spec",
        (
            "request.operation != 'UPDATE' || !has(oldObject.spec) || object.spec != oldObject.spec"
            + "".join(f" || {_changed_to(key)}" for key in names.JUDGED_ANNOTATIONS)
        ),
    ),
    ("not-being-deleted", "!has(object.metadata.deletionTimestamp)"),
    # a NodeClaim of a NodePool is made from what was validated, and no launch may wait for this
    (
        "not-of-a-nodepool",
        f"request.resource.resource != 'nodeclaims' || !has(object.metadata.labels) || !('{names.NODEPOOL_LABEL}' in object.metadata.labels)",
    ),
)


class RegistrationError(ValueError):
    """A `--register-url` that the API server would refuse; the text says why."""


def url_client(url: str, path: str = MUTATE_PATH) -> dict[str, Any]:
    """The clientConfig of a webhook at an address outside the cluster.

    Args:
        url: with the path of the mutating webhook, or with none: then it is `/mutate`.
        path: of the webhook that is meant; any but `/mutate` takes the place of the last part of the URL's path.

    Raises:
        RegistrationError: no https, no host, or parts that the API refuses (user, query, fragment).
    """
    try:
        parts = urlsplit(url)
        _ = parts.port  # a port that is no number raises here
    except ValueError as error:
        raise RegistrationError(f"{url!r} is not a URL: {error}") from error
    if parts.scheme != "https" or not parts.hostname:
        raise RegistrationError(f"the webhook's URL must look like https://HOST:PORT, got {url!r}")
    if parts.query or parts.fragment or parts.username:
        raise RegistrationError(f"the webhook's URL must have no user, query or fragment: {url!r}")
    given = parts.path if parts.path not in ("", "/") else MUTATE_PATH
    if path != MUTATE_PATH:
        given = f"{given.rstrip('/').rpartition('/')[0]}{path}"
    return {"url": f"https://{parts.netloc}{given}"}


def webhook_configuration(
    client_config: dict[str, Any],
    own_namespace: str,
    name: str = CONFIGURATION_NAME,
) -> dict[str, Any]:
    """The whole document, without a `caBundle`: the program puts that in (`certs.injection`).

    Pods only, at creation only; never workloads, which would show as drift to GitOps. It fails open: a webhook that is
    away costs a pod at most `TIMEOUT_SECONDS`. Every defaulted field is written out, so that the document can be
    compared with what the API server returns.

    Args:
        client_config: `url_client(...)`; the manifests have the address of a Service in its place.
        own_namespace: where Dovetail runs; its own pods must never wait for it.
        name: of the configuration object.
    """
    return _document(
        "MutatingWebhookConfiguration",
        name,
        {
            **_hook(HOOK_NAME, client_config, MATCH_CONDITIONS),
            "reinvocationPolicy": "IfNeeded",
            "rules": pod_rules(),
            "namespaceSelector": namespace_selector(own_namespace),
        },
    )


def pod_rules() -> list[dict[str, Any]]:
    """Pods, when they are created."""
    return [
        {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE"],
            "resources": ["pods"],
            "scope": "Namespaced",
        }
    ]


def namespace_selector(own_namespace: str) -> dict[str, Any]:
    """The namespaces whose pods are stamped: neither the system's, nor ours, nor those that opted out."""
    return {
        "matchExpressions": [
            {
                "key": "kubernetes.io/metadata.name",
                "operator": "NotIn",
                "values": [*stamping.SYSTEM_NAMESPACES, own_namespace],
            },
            {"key": names.STAMP_SWITCH, "operator": "NotIn", "values": [stamping.DISABLED]},
        ]
    }


def validating_configuration(client_config: dict[str, Any], name: str = CONFIGURATION_NAME) -> dict[str, Any]:
    """The whole document of the validating webhook, without a `caBundle`, as `webhook_configuration`.

    Creations, and updates of the spec; neither the status nor deletions. It fails open, so the objects are checked again by the controllers
    that use them.

    Args:
        client_config: of `VALIDATE_PATH`.
        name: of the configuration object.
    """
    return _document(
        "ValidatingWebhookConfiguration",
        name,
        {
            **_hook(VALIDATING_HOOK_NAME, client_config, VALIDATING_MATCH_CONDITIONS),
            "rules": [
                {
                    "apiGroups": [api_version.partition("/")[0]],
                    "apiVersions": [api_version.partition("/")[2]],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": resources,
                    "scope": "Cluster",
                }
                for api_version, resources in (
                    (karpenter.API_VERSION, ["nodepools", "nodeclaims"]),
                    (overlay.API_VERSION, ["nodeoverlays"]),
                    (ec2.API_VERSION, ["ec2nodeclasses"]),
                )
            ],
            "namespaceSelector": {},
        },
    )


def _document(kind: str, name: str, hook: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "dovetail"}},
        "webhooks": [hook],
    }


def _hook(name: str, client_config: dict[str, Any], conditions: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """What both webhooks have; they fail open."""
    return {
        "name": name,
        "clientConfig": client_config,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
        "matchPolicy": "Equivalent",
        "timeoutSeconds": TIMEOUT_SECONDS,
        "objectSelector": {},
        "matchConditions": [{"name": condition, "expression": expression} for condition, expression in conditions],
    }
