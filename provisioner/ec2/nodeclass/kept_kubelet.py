"""The kubelet's settings of NodePools that were written at v1beta1: an annotation instead of the class's `spec.kubelet`. Pure.

Source: karpenter-provider-aws v1.0, where the annotation wins over the class.
Differs: an edit of it concerns new nodes only.
"""

from collections.abc import Mapping

import msgspec

from provisioner.apis.conversion.beta import kept_kubelet
from provisioner.apis.conversion.definitions import KUBELET
from provisioner.apis.ec2 import EC2NodeClass


def with_kept_kubelet(node_class: EC2NodeClass, annotations: Mapping[str, str]) -> EC2NodeClass:
    """The class as nodes of one NodePool or NodeClaim get it; itself where nothing was kept, or cannot be read.

    Args:
        node_class: as it is stored; not changed.
        annotations: of the NodePool or NodeClaim. Fields that v1beta1 did not have are left out.
    """
    found = kept_kubelet(annotations)
    if found is None:
        return node_class
    kubelet = {name: value for name, value in found.items() if name in KUBELET["properties"]}
    return msgspec.structs.replace(node_class, spec=msgspec.structs.replace(node_class.spec, kubelet=kubelet))
