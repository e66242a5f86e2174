"""Which node classes there are providers for, with the labels that their nodes may have."""

from typing import Final

from provisioner.apis import ec2, kwok, names
from provisioner.apis.verdicts import NodeClasses
from provisioner.cloudprovider.aws import labels
from provisioner.cloudprovider.kwok.catalogue import INSTANCE_LABELS

NODE_CLASSES: Final[NodeClasses] = {
    (labels.GROUP, ec2.KIND): names.WELL_KNOWN_LABELS | labels.WELL_KNOWN,
    (kwok.GROUP, kwok.KIND): names.WELL_KNOWN_LABELS | INSTANCE_LABELS,
}
