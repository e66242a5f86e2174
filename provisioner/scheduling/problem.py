"""What scheduling is asked: pods, and everything they might run on. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass

from provisioner.apis.pods import Pod, PodShape
from provisioner.cloudprovider.types import InstanceType
from provisioner.values.requirement import Requirements
from provisioner.values.resources import Resources
from provisioner.values.taints import Taint


@dataclass(frozen=True, slots=True)
class Pool:
    """A NodePool that may make machines now (ready, not static, not deleting).

    Attributes:
        name: unique in a problem.
        weight: higher is tried first; equal weights by name, descending, as Karpenter does.
        requirements: the template's requirements, its labels, the nodepool label and the NodeClass label, merged.
        taints: what pods and daemons must tolerate.
        startup_taints: fall before pods are let in, so nothing has to tolerate them.
        instance_types: the provider's answer for this pool, any order; give the same tuple while it is unchanged,
            what is derived from it is kept between problems.
        remaining: limits less what the pool's machines use, `nodes` included; None without limits. Only limited
            resources appear; an amount may be negative.
        template: opaque to scheduling, handed back with every planned claim.
    """

    name: str
    requirements: Requirements
    instance_types: tuple[InstanceType, ...]
    weight: int = 0
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    remaining: Resources | None = None
    template: object = None


@dataclass(frozen=True, slots=True)
class Bin:
    """A machine that exists or is on its way: a Node, or a NodeClaim whose Node has not come yet.

    Attributes:
        name: unique in a problem, the key of `Result.existing`.
        labels: as kube-scheduler will see them; nothing else is known of the machine.
        room: what one more pod may use: daemons still due and planned pods are taken off already.
        taints: as kube-scheduler will see them once the machine is ready (no startup, no ephemeral ones).
        node_name: the Node's name, for matchFields; "" while it is unknown.
        pool: the NodePool's name, "" where there is none.
    """

    name: str
    labels: Mapping[str, str]
    room: Resources
    taints: tuple[Taint, ...] = ()
    node_name: str = ""
    pool: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """One question to `solver.solve`.

    Attributes:
        pods: what needs a place; any order.
        pools: where new machines may come from; any order.
        bins: machines of now in order of preference (initialised first, then by name): the order is meant.
        daemons: one shape a DaemonSet; any order.
        well_known: label keys that the provider sets by itself, so that a NodePool need not define them, besides
            `names.WELL_KNOWN_LABELS`, which always count.
    """

    pods: tuple[Pod, ...]
    pools: tuple[Pool, ...] = ()
    bins: tuple[Bin, ...] = ()
    daemons: tuple[PodShape, ...] = ()
    well_known: frozenset[str] = frozenset()
