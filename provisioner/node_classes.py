"""Which node classes there are providers for, with the labels that their nodes may have, and what is to be said of an object by itself. Pure."""

from typing import Any, Final

from provisioner.apis import ec2, kwok, names, verdicts
from provisioner.apis.verdicts import NodeClasses, ObjectVerdict
from provisioner.cloudprovider.kwok.catalogue import INSTANCE_LABELS
from provisioner.ec2 import labels
from provisioner.ec2.nodeclass import validation

NODE_CLASSES: Final[NodeClasses] = {
    (labels.GROUP, ec2.KIND): names.WELL_KNOWN_LABELS | labels.WELL_KNOWN,
    (kwok.GROUP, kwok.KIND): names.WELL_KNOWN_LABELS | INSTANCE_LABELS,
}


def verdict(obj: Any) -> ObjectVerdict:
    """As of `verdicts.verdict`, with what the provider of a node class finds before it asks its cloud."""
    found = verdicts.verdict(obj, NODE_CLASSES)
    if not isinstance(obj, ec2.EC2NodeClass):
        return found
    own = validation.offline(obj)
    return ObjectVerdict((*found.errors, *own.errors), (*found.warnings, *own.warnings))
