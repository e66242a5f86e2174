"""The objects that an answer is made from: read with the user's own permissions, or out of a dump. Nothing is written."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from provisioner.apis import names
from provisioner.apis.gangs import GroupSource, group_of, minimum_of_pod, source_of
from provisioner.apis.meta import key_of
from provisioner.cli.documents import flattened, inputs
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError, ConnectionFailed, Forbidden, NotFound
from provisioner.kube.resources import Resource, identity_in
from provisioner.kube.survey import survey
from provisioner.state.knowledge import KindKnowledge
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
    *resources.GROUP_KINDS.values(),
)
"""Without one of these the answer is made as if there were none of its kind, and says so."""
MOST_JOBS: Final = 50
"""That are read for gangs of which annotations do not say the minimum."""
CLASSES: Final = frozenset({resources.KWOKNODECLASSES.plural, resources.EC2NODECLASSES.plural})
"""Of which a cluster has the kind of its provider only."""
_SOURCES: Final = {str(kind): source for source, kind in resources.GROUP_KINDS.items()}
_NOT_EVERYWHERE: Final = CLASSES | {resources.PODGROUPS.plural}


class WhyObjects:
    """Decoded objects by kind.

    Attributes:
        missing: sentences about what could not be read, and is left out.
        absent: sentences about kinds of which a dump has nothing; the cluster may have none.
        pod_groups: by source, what is known of its objects.
        gone_jobs: namespaces and names of Jobs that pods of gangs name, and that the cluster does not have.
    """

    def __init__(self) -> None:
        self._by_kind: defaultdict[str, list[Any]] = defaultdict(list)
        self.missing: list[str] = []
        self.absent: list[str] = []
        self.pod_groups = dict.fromkeys(resources.GROUP_KINDS, KindKnowledge.READ)
        self.gone_jobs: set[tuple[str, str]] = set()

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
            if (source := _SOURCES.get(str(resource))) is not None:
                _without_groups(objects, source, error)
            elif isinstance(error, Forbidden) and resource.plural not in CLASSES:
                objects.missing.append(f"You may not list {resource}, so the answer assumes that there are none")
            continue
        except ApiError as error:
            raise UndeterminedError(f"could not list {resource}: {error}") from None
        objects.add(resource, found.objects)
        for bad in found.unreadable:
            objects.left_out(resource, str(bad), bad.error)
    _add_jobs(objects, client)
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
    every = (*NEEDED, *MORE, resources.AUTOSCALERS, resources.JOBS, resources.CONFIGMAPS)
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
    for kind, source in _SOURCES.items():
        if kind not in seen:
            objects.pod_groups[source] = KindKnowledge.NOT_SERVED
            if _has_members(objects, source):
                objects.absent.append(f"The dump has no {kind}, so pods of groups are taken as single pods")
    return objects


def _without_groups(objects: WhyObjects, source: GroupSource, error: Forbidden | NotFound) -> None:
    """Who may not list them is told so whether or not the API server has any: that matters only to pods of groups."""
    if isinstance(error, NotFound):
        objects.pod_groups[source] = KindKnowledge.NOT_SERVED
        return
    objects.pod_groups[source] = KindKnowledge.UNREADABLE
    if _has_members(objects, source):
        objects.missing.append(
            f"You may not list {resources.GROUP_KINDS[source]}, so the answer does not know which groups are complete"
        )


def _add_jobs(objects: WhyObjects, client: Client) -> None:
    """The Jobs that say how many pods a gang needs at once; of more than a few gangs the first."""
    pods = (one for one in objects.of(resources.PODS) if one.owner is not None and minimum_of_pod(one) == 0)
    for namespace, name in itertools.islice(dict.fromkeys((one.namespace, one.owner.name) for one in pods), MOST_JOBS):
        try:
            found = client.find(resources.JOBS, name, namespace)
        except ApiError as error:
            objects.missing.append(f"Job {namespace}/{name} could not be read, so its gang is not known: {error}")
            if isinstance(error, ConnectionFailed):
                return  # each of the others would take as long
            continue
        if found is None:
            objects.gone_jobs.add((namespace, name))
        else:
            objects.add(resources.JOBS, (found,))


def _has_members(objects: WhyObjects, source: GroupSource) -> bool:
    return any((key := group_of(one)) and source_of(key) is source for one in objects.of(resources.PODS))


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
