"""How many volumes of each CSI driver a node takes: the only place that decides it, for nodes that are there, on their way, or to be made.

A driver that the node's own CSINode names takes what it says. Until then, and for a node to be made, CSINodes of its instance type tell,
else the type itself; a driver of which nobody says anything takes any number.
Differs: kube-scheduler puts any number of volumes on a node until its CSINode names the driver, and such a pod never starts there.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from provisioner.apis.core import ANY_NUMBER
from provisioner.apis.names import INSTANCE_TYPE_LABEL
from provisioner.cloudprovider.types import InstanceType
from provisioner.scheduling.capacity.catalogue import Catalogue
from provisioner.scheduling.constraints.vectors import ATTACHABLE
from provisioner.scheduling.problem import Bin

_NOTHING: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True, eq=False)
class AttachLimits:
    """See the module.

    Attributes:
        learnt: by instance type and driver, what CSINodes of the type say.
        catalogues: the instance types of each NodePool.
    """

    learnt: Mapping[str, Mapping[str, int]]
    catalogues: Mapping[str, Catalogue]

    def of_type(self, kind: InstanceType, drivers: Iterable[str]) -> dict[str, int]:
        """By driver, what a node takes that is to be of this type."""
        told = {**kind.attach_limits, **self.learnt.get(kind.name, _NOTHING)}
        return {one: told.get(one, kind.capacity.get(ATTACHABLE + one, ANY_NUMBER)) for one in drivers}

    def of_node(self, node: Bin, drivers: Iterable[str]) -> Mapping[str, int]:
        """By driver, what a node takes."""
        said, name = node.attach_limits, node.labels.get(INSTANCE_TYPE_LABEL, "")
        if not name or all(one in said for one in drivers):
            return said
        catalogue = self.catalogues.get(node.pool)
        row = catalogue.row_of(name) if catalogue is not None else None
        if catalogue is None or row is None:
            return {**self.learnt.get(name, _NOTHING), **said}
        return {**self.of_type(catalogue.types[row], drivers), **said}
