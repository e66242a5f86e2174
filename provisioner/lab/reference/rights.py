"""What each program may do, read from the manifests that grant it."""

import pathlib
from collections.abc import Iterator
from typing import Any

import yaml

from provisioner.lab.reference.markdown import code, page, table


def text(manifests: pathlib.Path) -> str:
    """docs/reference/rbac.md, of every Role and ClusterRole below `manifests`."""
    parts = []
    for path in sorted(manifests.rglob("*.yaml")):
        if "charts" in path.relative_to(manifests).parts:
            continue  # the same, as templates
        content = path.read_text(encoding="utf-8")
        if "rbac.authorization.k8s.io" not in content:
            continue  # CloudFormation has tags of its own
        roles = [one for one in yaml.safe_load_all(content) if _grants(one)]
        parts += [f"## {manifests.name}/{path.relative_to(manifests)}\n"] if roles else []
        for role in roles:
            namespace = role["metadata"].get("namespace")
            parts.append(f"{role['kind']} `{role['metadata']['name']}`{f' in `{namespace}`' if namespace else ''}:\n")
            parts.append(table(("API group", "resources", "names", "verbs"), _rules(role)))
    return page(
        "RBAC permissions",
        "The permissions that `kubectl apply -k` of each component grants. manifests/aws/README.md lists the AWS permissions.\n",
        *parts,
    )


def _grants(document: Any) -> bool:
    return isinstance(document, dict) and document.get("kind") in ("Role", "ClusterRole")


def _rules(role: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for rule in role.get("rules") or ():
        groups = ", ".join(code(group or "core") for group in rule.get("apiGroups", ()))
        what = [*rule.get("resources", ()), *rule.get("nonResourceURLs", ())]
        yield groups, _codes(what), _codes(rule.get("resourceNames", ())), _codes(rule["verbs"])


def _codes(words: list[str]) -> str:
    return ", ".join(map(code, words))
