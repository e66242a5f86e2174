"""Everything that is in a cluster, and in an account of the emulated EC2: what is left when something was taken away."""

from dataclasses import dataclass
from typing import Final

from provisioner.lab.devcluster.cluster import DevCluster
from tests.support.ec2 import Ec2

_LINE: Final = r'{range .items[*]}{.kind}{" "}{.metadata.namespace}{"/"}{.metadata.name}{"\n"}{end}'
_FLEETING: Final = frozenset({"Event", "Pod"})
"""Of events there are always more, and pods are made anew by their controllers under other names."""


def objects(cluster: DevCluster) -> frozenset[str]:
    """Every object of every kind, cluster-wide, as "Kind namespace/name"; without events and pods."""
    kinds = cluster.kubectl("api-resources", "--verbs=list", "-o", "name").split()
    wanted = ",".join(one for one in kinds if one != "componentstatuses")
    found = cluster.kubectl("get", wanted, "-A", "-o", f"jsonpath={_LINE}").splitlines()
    return frozenset(one for one in found if one.partition(" ")[0] not in _FLEETING)


@dataclass(frozen=True)
class Account:
    """What is paid for or stays in an account.

    Attributes:
        instances: IDs of those that run.
        templates: names of launch templates.
        profiles: names of instance profiles.
    """

    instances: frozenset[str]
    templates: frozenset[str]
    profiles: frozenset[str]

    @classmethod
    def of(cls, ec2: Ec2) -> "Account":
        """As it is now."""
        left = ec2.left()
        return cls(
            frozenset(one["id"] for one in ec2.alive()), frozenset(left["templates"]), frozenset(left["profiles"])
        )
