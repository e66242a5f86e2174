"""The objects that an answer is made from: read with the user's own permissions, or out of a dump. Nothing is written."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from provisioner.apis import names
from provisioner.apis.meta import key_of
from provisioner.cli.documents import flattened, inputs
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError, Forbidden, NotFound
from provisioner.kube.resources import Resource, identity_in
from provisioner.kube.survey import survey
from provisioner.state.groups import GroupKnowledge
from provisioner.values.errors import UndeterminedError, UserError

NEEDED: Final[tuple[Resource[Any], ...]] = (
    resources.AMOUNTS_OF_PODS,
    resources.NODES,
    resources.NODEPOOLS,
    resources.NODECLAIMS,
)
"""Without these there is no answer."""
MORE: Final[tuple[Resource[Any], ...]] = (
    resources.DAEMONSETS,
    resources.PDBS,
    resources.NAMESPACE_LABELS,
    resources.LIMITRANGES,
    resources.RUNTIMECLASSES,
    resources.PRIORITYCLASSES,
    resources.PVCS,
    resources.PVS,
    resources.STORAGECLASSES,
    resources.CSIDRIVERS,
    resources.CSINODES,
    resources.VOLUMEATTACHMENTS,
    resources.NODEOVERLAYS,
    resources.KWOKNODECLASSES,
    resources.EC2NODECLASSES,
    resources.PODGROUPS,
)
"""Without one of these the answer is made as if there were none of its kind, and says so."""
CLASSES: Final = frozenset({resources.KWOKNODECLASSES.plural, resources.EC2NODECLASSES.plural})
"""Of which a cluster has the kind of its provider only."""
_NOT_EVERYWHERE: Final = CLASSES | {resources.PODGROUPS.plural}


class WhyObjects:
    """Decoded objects by kind.

    Attributes:
        missing: sentences about what could not be read, and is left out.
        absent: sentences about kinds of which a dump has nothing; the cluster may have none.
        pod_groups: what is known of PodGroups.
    """

    def __init__(self) -> None:
        self._by_kind: defaultdict[str, list[Any]] = defaultdict(list)
        self.missing: list[str] = []
        self.absent: list[str] = []
        self.pod_groups = GroupKnowledge.READ

    def of(self, resource: Resource[Any]) -> list[Any]:
        """All objects of one kind, in the order in which they were read."""
        return self._by_kind[str(resource)]

    def add(self, resource: Resource[Any], found: Iterable[Any]) -> None:
        """More of one kind."""
        self._by_kind[str(resource)] += found

    def left_out(self, resource: Resource[Any], name: str, error: object) -> None:
        """One object cannot be read."""
        self.missing.append(f"{resource.kind} {name or '(unknown)'} cannot be read and is left out: {error}")


def from_cluster(client: Client, namespace: str, *, predictions: bool = False) -> WhyObjects:
    """Everything of all kinds, from the API server; VerticalPodAutoscalers where pods are sized by them.

    Raises:
        UndeterminedError: a kind without which there is no answer could not be listed.
    """
    objects = WhyObjects()
    for resource in (*NEEDED, *MORE, *((resources.AUTOSCALERS,) if predictions else ())):
        try:
            found = survey(client, resource, decode=resource.decode)
        except (Forbidden, NotFound) as error:
            if resource in NEEDED:
                raise UndeterminedError(f"could not list {resource}: {error.message}") from None
            if resource is resources.PODGROUPS:
                _without_groups(objects, error)
            elif isinstance(error, Forbidden) and resource.plural not in CLASSES:
                objects.missing.append(f"You may not list {resource}, so the answer assumes that there are none")
            continue
        except ApiError as error:
            raise UndeterminedError(f"could not list {resource}: {error}") from None
        objects.add(resource, found.objects)
        for bad in found.unreadable:
            objects.left_out(resource, str(bad), bad.error)
    try:
        objects.add(resources.CONFIGMAPS, (client.get(resources.CONFIGMAPS, names.SETTINGS_CONFIGMAP, namespace),))
    except NotFound:
        pass
    except ApiError as error:
        objects.missing.append(
            f"ConfigMap {namespace}/{names.SETTINGS_CONFIGMAP} could not be read, so it is not known whether everything is paused: {error.message}"
        )
    return objects


def from_files(paths: Sequence[str]) -> WhyObjects:
    """Everything in files as `kubectl get … -o yaml` or `-o json` writes them; "-" is the standard input.

    Raises:
        UserError: a file cannot be read, or no kind without which there is no answer is in any of them.
    """
    objects = WhyObjects()
    every = (*NEEDED, *MORE, resources.AUTOSCALERS, resources.CONFIGMAPS)
    known = {(one.api_version, one.kind): one for one in every}
    seen: set[str] = set()
    for file in inputs(map(Path, paths)):
        for document in file.documents():
            for one in flattened(document):
                resource = _kind_in(known, one)
                if resource is not None:
                    seen.add(str(resource))
                    _add(objects, resource, one)
            if (empty := _kind_in(known, document, "List")) is not None:
                seen.add(str(empty))
    seen.discard(str(resources.CONFIGMAPS))  # one says nothing of the others
    lacking = [str(one) for one in NEEDED if str(one) not in seen]
    if not seen:
        raise UserError(f"the dump has none of {', '.join(lacking)}; make it with: kubectl get -A -o yaml {kinds()}")
    objects.absent += [f"The dump has no {one}, so the answer assumes that there are none" for one in lacking]
    if str(resources.PDBS) not in seen:
        objects.absent.append("The dump has no poddisruptionbudgets.policy, so the answer assumes that there are none")
    if str(resources.PODGROUPS) not in seen:
        objects.pod_groups = GroupKnowledge.NOT_SERVED
        if _has_members(objects):
            objects.absent.append(
                "The dump has no podgroups.scheduling.k8s.io, so pods of groups are taken as single pods"
            )
    return objects


def _without_groups(objects: WhyObjects, error: Forbidden | NotFound) -> None:
    """Who may not list them is told so whether or not the API server has any: that matters only to pods of groups."""
    if isinstance(error, NotFound):
        objects.pod_groups = GroupKnowledge.NOT_SERVED
        return
    objects.pod_groups = GroupKnowledge.UNREADABLE
    if _has_members(objects):
        objects.missing.append(
            f"You may not list {resources.PODGROUPS}, so the answer does not know which groups are complete"
        )


def _has_members(objects: WhyObjects) -> bool:
    return any(one.group for one in objects.of(resources.PODS))


def kinds() -> str:
    """What to give `kubectl get` for a whole dump."""
    return ",".join(dict.fromkeys(str(one) for one in (*NEEDED, *MORE) if one.plural not in _NOT_EVERYWHERE))


def _kind_in(known: Mapping[tuple[str, str], Resource[Any]], one: object, suffix: str = "") -> Resource[Any] | None:
    if not isinstance(one, dict):
        return None
    return known.get((str(one.get("apiVersion")), str(one.get("kind")).removesuffix(suffix)))


def _add(objects: WhyObjects, resource: Resource[Any], one: Any) -> None:
    data = msgspec.json.encode(one)
    try:
        objects.add(resource, (resource.decode(data),))
    except (msgspec.MsgspecError, ValueError) as error:
        found = identity_in(data)
        objects.left_out(resource, key_of(found), error)
