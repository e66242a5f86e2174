"""Carries steps out, one write each. What has changed since it was read is left to the next look."""

from collections.abc import Callable, Iterable

from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError, Conflict, Invalid, NotFound
from provisioner.leaving.belongings import LeaveStep, Verb
from provisioner.leaving.gathering import WRITTEN, CloudTags
from provisioner.support.errors import UndeterminedError


def carry_out(
    steps: Iterable[LeaveStep], client: Client, say: Callable[[str], object], tags: CloudTags | None = None
) -> None:
    """Take these steps, and say each that was taken.

    Raises:
        UndeterminedError: one of them was refused.
    """
    for step in steps:
        try:
            _take(step, client, tags)
        except (Conflict, NotFound, Invalid):
            continue  # another one now, or gone: what comes next is decided from what is there then
        except ApiError as error:
            raise UndeterminedError(f"{step.kind} {step.name}: {error}") from None
        say(str(step))


def _take(step: LeaveStep, client: Client, tags: CloudTags | None) -> None:
    match step.verb:
        case Verb.UNTAG:
            if tags is not None:
                tags.remove(step.body)
        case Verb.DELETE:
            client.delete(WRITTEN[step.kind], step.name, step.namespace, uid=step.uid, resource_version=step.version)
        case Verb.JSON:
            client.patch(WRITTEN[step.kind], step.name, step.body, step.namespace, kind="json")
        case Verb.MERGE:
            client.patch(WRITTEN[step.kind], step.name, step.body, step.namespace, kind="merge")
