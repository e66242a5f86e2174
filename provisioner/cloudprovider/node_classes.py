"""Which node classes there are providers for, with the labels that their nodes may have, and what is to be said of an object by itself. Pure."""

from typing import Any, Final

from provisioner.apis import ec2, kwok, names, verdicts
from provisioner.apis.verdicts import NodeClasses, Verdict
from provisioner.cloudprovider.aws import labels
from provisioner.cloudprovider.aws.nodeclass import validation
from provisioner.cloudprovider.kwok.catalogue import INSTANCE_LABELS

NODE_CLASSES: Final[NodeClasses] = {
    (labels.GROUP, ec2.KIND): names.WELL_KNOWN_LABELS | labels.WELL_KNOWN,
    (kwok.GROUP, kwok.KIND): names.WELL_KNOWN_LABELS | INSTANCE_LABELS,
}


def verdict(obj: Any) -> Verdict:
    """As of `verdicts.verdict`, with what the provider of a node class finds before it asks its cloud."""
    found = verdicts.verdict(obj, NODE_CLASSES)
    if not isinstance(obj, ec2.EC2NodeClass):
        return found
    own = validation.offline(obj)
    return Verdict((*found.errors, *own.errors), (*found.warnings, *own.warnings))
