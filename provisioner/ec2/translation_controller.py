"""Provisioners and AWSNodeTemplates (before v1beta1) become NodePools and EC2NodeClasses, and are told in status and events what became of them.

What is made says in an annotation what it was made from, and carries a hash of what was written. So nothing that exists is ever adopted, an
object that was edited since is left alone, and a change of the old object reaches the new one. Deleting the old object deletes nothing.

Every round reads the few objects there are anew; each step can be repeated, so a crash between two writes leaves nothing behind.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias

import msgspec

from provisioner.apis import names
from provisioner.apis.conversion import alpha
from provisioner.apis.conversion.alpha_types import TRANSLATED, OldObject
from provisioner.apis.conversion.definitions import PROVISIONER, V1
from provisioner.apis.meta import Condition, condition
from provisioner.apis.openapi import defaulted
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import AlreadyExists, ApiError, BadRequest, Forbidden, Invalid, NotFound
from provisioner.kube.events import Recorder
from provisioner.kube.resources import Resource
from provisioner.runtime.object_reference import reference_of
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.values.jsontext import pointer
from provisioner.values.message import ConditionMessage, Said

MARKER: Final = "dovetail-conversion"
"""ConfigMap of the component; what is older than it waits to be asked for."""
TRANSLATED_FROM, TRANSLATED_HASH, TRANSLATE = names.TRANSLATED_FROM, names.TRANSLATED_HASH, names.TRANSLATE
SECONDS: Final = 5.0
REST_SECONDS: Final = 30.0
MAX_CONDITION: Final = 30_000

Document: TypeAlias = Mapping[str, Any]
_KINDS: Final[Mapping[str, Resource[Any]]] = {"NodePool": resources.NODEPOOLS, "EC2NodeClass": resources.EC2NODECLASSES}
_log = logs.get_logger(__name__)
_FAILED_TO_TRANSLATE: Final = "Failed to translate an object; retrying"


@dataclass(frozen=True, slots=True)
class TranslationStep:
    """What is to be done about one object that a translation made.

    Attributes:
        create: it is not there.
        update: it is there as it was last written, and is to be changed.
        refusal: it is there and is not ours to change.
    """

    create: bool = False
    update: bool = False
    refusal: ConditionMessage | None = None


def step(wanted: Document, found: Document | None, origin: str) -> TranslationStep:
    """What to do about one object; pure.

    Args:
        wanted: as the translation made it.
        found: as the API server has it; None for not there.
        origin: of the old object, as `origin_of` says it.
    """
    if found is None:
        return TranslationStep(create=True)
    kind, name = str(wanted["kind"]), str(wanted["metadata"]["name"])
    annotations = found["metadata"].get("annotations", {})
    if annotations.get(TRANSLATED_FROM) != origin:
        return TranslationStep(
            refusal=ConditionMessage(
                "Translated",
                names.FALSE,
                f"{kind}Exists",
                f"{kind} {name} was not made from this object; delete one of them, or rename this one",
            )
        )
    if annotations.get(TRANSLATED_HASH) == spec_hash(wanted):
        return TranslationStep()
    if annotations.get(TRANSLATED_HASH) != spec_hash(found):
        return TranslationStep(
            refusal=ConditionMessage(
                "Translated",
                names.FALSE,
                f"{kind}Edited",
                f"{kind} {name} was edited and no longer follows this object; delete this object, or undo the edit",
            )
        )
    return TranslationStep(update=True)


def spec_hash(document: Document) -> str:
    """Of a spec with its defaults."""
    whole = defaulted(V1[str(document["kind"])], document)["spec"]
    return hashlib.sha256(msgspec.json.encode(whole, order="deterministic")).hexdigest()[:32]


def origin_of(old: OldObject) -> str:
    """What the objects say that they were made from."""
    return f"{old.kind}/{old.metadata.name}/{old.metadata.uid}"


def waits(old: OldObject, since: datetime) -> bool:
    """Whether an object is older than the component, and nobody has asked for its translation; pure."""
    created = old.metadata.creation_timestamp
    return created is not None and created < since and old.metadata.annotations.get(TRANSLATE) != "true"


class Translator:
    """One round after another over all Provisioners and AWSNodeTemplates.

    Args:
        clock: for the times of conditions.
        namespace: of the component.
        cluster: name of the cluster.
        beside: that another Karpenter leads, as a sentence; "" where none does.
    """

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        clock: Clock,
        namespace: str,
        cluster: str,
        beside: Callable[[], str],
    ) -> None:
        self._client, self._recorder, self._clock, self._beside = client, recorder, clock, beside
        self._namespace, self._cluster = namespace, cluster
        self._refused = ""

    def poll(self) -> float:
        """One round; seconds until the next.

        Raises:
            ApiError: what has to be known could not be read.
        """
        problem, since = self._hindrance()
        if problem != self._refused:
            self._refused = problem
            if problem:
                _log.warning("Not translating Provisioners", reason=problem)
        if since is None:
            return REST_SECONDS
        templates = self._client.list(resources.AWSNODETEMPLATES)
        by_name = {one.metadata.name: {"metadata": {"name": one.metadata.name}, "spec": one.spec} for one in templates}
        for old in (*templates, *self._client.list(resources.PROVISIONERS)):
            if old.metadata.deletion_timestamp is None:
                self._one(old, problem, since, by_name)
        return SECONDS

    def _hindrance(self) -> tuple[str, datetime | None]:
        """Why nothing is translated, and since when the component is there; None for not at all."""
        found = self._client.find(resources.CONFIGMAPS, MARKER, self._namespace)
        if found is None:
            return Said(f"ConfigMap {self._namespace}/{MARKER} does not exist; apply the component conversion"), None
        return self._beside(), found.metadata.creation_timestamp

    def _one(self, old: OldObject, problem: str, since: datetime, templates: Mapping[str, Document]) -> None:
        try:
            self._tell(old, self._outcome(old, problem, since, templates))
        except ApiError as error:
            _log.warning(_FAILED_TO_TRANSLATE, object=f"{old.kind}/{old.metadata.name}", error=str(error))
        except Exception as error:  # noqa: BLE001 - one object keeps no other from its translation
            _log.exception(_FAILED_TO_TRANSLATE, object=f"{old.kind}/{old.metadata.name}", error=type(error).__name__)

    def _outcome(
        self, old: OldObject, problem: str, since: datetime, templates: Mapping[str, Document]
    ) -> ConditionMessage:
        if problem:
            return ConditionMessage("Translated", names.FALSE, "KarpenterRuns", problem)
        document = {"metadata": {"name": old.metadata.name}, "spec": old.spec}
        if old.kind == PROVISIONER.kind:
            made = alpha.provisioner(document, templates, self._cluster)
        else:
            made = alpha.template(document, self._cluster)
        if made.errors:
            return ConditionMessage("Translated", names.FALSE, "Unsupported", "; ".join(map(str, made.errors)))
        origin = origin_of(old)
        found = [self._read(one) for one in made.objects]
        steps = [step(want, one, origin) for want, one in zip(made.objects, found, strict=True)]
        if waits(old, since) and all(todo.create or todo.refusal is not None for todo in steps):
            return ConditionMessage(
                "Translated",
                names.FALSE,
                "WaitingForAnnotation",
                f'older than the conversion component; annotate it with {TRANSLATE}="true" to translate it',
            )
        refusal = next((one.refusal for one in steps if one.refusal is not None), None)
        if refusal is not None:
            return refusal
        for want, there, todo in zip(made.objects, found, steps, strict=True):
            try:
                self._write(want, there, todo, origin)
            except (BadRequest, Forbidden, Invalid) as error:
                # by a webhook, a policy or a rule; the next round tries again
                if isinstance(error, Invalid) and there is not None and self._has_changed(want, there):
                    raise
                return ConditionMessage(
                    "Translated",
                    names.FALSE,
                    "Rejected",
                    f"{want['kind']} {want['metadata']['name']} was rejected: {error.message}",
                )
        listed = ", ".join(f"{one['kind']} {one['metadata']['name']}" for one in reversed(made.objects))
        return ConditionMessage(
            "Translated",
            names.TRUE,
            "Translated",
            f"became {listed}, which stay if this object is deleted; {'; '.join(map(str, made.decisions))}",
        )

    def _has_changed(self, wanted: Document, found: Document) -> bool:
        """Whether somebody wrote an object since it was found: a patch whose test fails is answered like one that breaks the schema."""
        now = self._read(wanted)
        return now is None or now["metadata"].get("resourceVersion") != found["metadata"].get("resourceVersion")

    def _read(self, wanted: Document) -> Document | None:
        resource = _KINDS[wanted["kind"]]
        try:
            found: dict[str, Any] = msgspec.json.decode(
                self._client.raw("GET", resource.path(name=wanted["metadata"]["name"]))
            )
        except NotFound:
            return None
        return found

    def _write(self, wanted: Document, found: Document | None, todo: TranslationStep, origin: str) -> None:
        name, resource = wanted["metadata"]["name"], _KINDS[wanted["kind"]]
        ours = {TRANSLATED_FROM: origin, TRANSLATED_HASH: spec_hash(wanted)}
        if todo.create:
            annotations = {**wanted["metadata"].get("annotations", {}), **ours}
            try:
                self._client.create(resource, {**wanted, "metadata": {"name": name, "annotations": annotations}})
            except AlreadyExists:
                return  # somebody's; the next round says so
        elif todo.update and found is not None:
            patch = [
                {"op": "test", "path": "/metadata/resourceVersion", "value": found["metadata"]["resourceVersion"]},
                {"op": "replace", "path": "/spec", "value": wanted["spec"]},
                *(
                    {"op": "add", "path": pointer("metadata", "annotations", key), "value": one}
                    for key, one in ours.items()
                ),
            ]
            self._client.patch(resource, name, patch, kind="json")

    def _tell(self, old: OldObject, said: ConditionMessage) -> None:
        """Write the condition, and say it in an event, where it is news."""
        before = condition(old.status.conditions, TRANSLATED)
        text = said.text[:MAX_CONDITION]
        if before is not None and (before.status, before.reason, before.message, before.observed_generation) == (
            *(said.status, said.reason, text),
            old.metadata.generation,
        ):
            return
        since = before.last_transition_time if before is not None and before.status == said.status else None
        new = Condition(
            type=TRANSLATED,
            status=said.status,
            reason=said.reason,
            message=text,
            observed_generation=old.metadata.generation,
            last_transition_time=since or self._clock.now(),
        )
        resource = resources.PROVISIONERS if old.kind == PROVISIONER.kind else resources.AWSNODETEMPLATES
        body = {"metadata": {"uid": old.metadata.uid}, "status": {"conditions": [new]}}
        self._client.patch(resource, old.metadata.name, body, subresource="status")
        self._recorder.publish(
            reference_of(old), "Normal" if said.status == names.TRUE else "Warning", said.reason, said.text
        )
