"""One scenario, and what the programs are started with for it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from provisioner.lab.harness.session import AWS, Session
from tests.scenarios import grounds
from tests.scenarios.steps import Step

DEFAULT = "default"
GATES = "--feature-gates=NodeRepair=true,StaticCapacity=true,NodeOverlay=true,CapacityBuffer=true"

FIRST_GATES = f"{GATES},TerminateFirstDrift=true,TerminateFirstRepair=true"


@dataclass(frozen=True)
class Group:
    """Rows that run side by side.

    Attributes:
        flags: of the provisioner.
        webhook: whether the webhook runs, too.
        cloud: where the nodes come from, "kwok" or "aws".
        prepare: what is done before the programs of the group start.
    """

    flags: tuple[str, ...] = (GATES,)
    webhook: bool = False
    cloud: str = "kwok"
    prepare: Callable[[Session], object] = grounds.nothing


ADMISSION: Final = "admission"
ALONE: Final = "alone"
BESIDE_LEADING: Final = "karpenter-leads"
INSTANCES, LEGACY_INSTANCES = "instances", "legacy-instances"
DEFAULTS, POLICY, SILENT, BESIDE, OLD = "defaults", "policy", "silent", "beside-karpenter", "old-versions"
GROUPS: dict[str, Group] = {
    DEFAULT: Group(),
    "impatient": Group((GATES, "--timeouts=command=25s,registration=25s", "--drain-timeout=20s")),
    "karpenter": Group((GATES, "--consolidation=karpenter")),
    "capped": Group((GATES, "--max-disrupting-nodes=1")),
    "slow": Group((GATES, "--max-claims-per-minute=2")),
    "gates-off": Group(()),
    "repair": Group((FIRST_GATES, "--repair-timeout=6s")),
    "legacy-repair": Group((GATES, "--repair-timeout=6s", "--legacy-node-repair")),
    "stopped": Group(),
    "spread": Group((GATES, f"--scheduler-config={grounds.SPREAD}"), prepare=grounds.spreading_scheduler),
    BESIDE_LEADING: Group(),
    ALONE: Group(),
    INSTANCES: Group((FIRST_GATES, "--repair-timeout=6s", "--aws-feature-gates=RebootForRepair=true"), cloud=AWS),
    LEGACY_INSTANCES: Group((GATES, "--repair-timeout=6s", "--legacy-node-repair"), cloud=AWS),
    ADMISSION: Group(webhook=True),
    DEFAULTS: Group(webhook=True, prepare=grounds.defaults),
    POLICY: Group(webhook=True, prepare=grounds.admission_policy),
    SILENT: Group(webhook=True, prepare=grounds.kept_and_silent),
    BESIDE: Group(("--translate-provisioners",), webhook=True, cloud=AWS, prepare=grounds.beside_karpenter),
    OLD: Group(("--translate-provisioners",), webhook=True, cloud=AWS, prepare=grounds.old_versions),
}
"""By name; groups run one after another, in this order, on one control plane.

"stopped" is for rows that stop the disruption of the whole cluster, "karpenter-leads" and "alone" for those that disturb, or pods of other rows would disturb: each has one; the last six are described where they are prepared.
"""


@dataclass(frozen=True)
class Row:
    """A scenario.

    Attributes:
        name: a sentence.
        steps: in order.
        group: see `GROUPS`.
        quick: part of `make test`.
        broken: why it fails at present, where that is known; it must fail then.
        namespace: labels of the row's namespace.
        extender: whether it is played only with the extender, or only without; None for both.
    """

    name: str
    steps: tuple[Step, ...]
    group: str = DEFAULT
    quick: bool = False
    broken: str = ""
    namespace: Mapping[str, str] = field(default_factory=dict)
    extender: bool | None = None


def row(
    name: str,
    *steps: Step,
    group: str = DEFAULT,
    quick: bool = False,
    broken: str = "",
    namespace: Mapping[str, str] | None = None,
    extender: bool | None = None,
) -> Row:
    """Short for `Row`."""
    return Row(name, steps, group, quick, broken, namespace or {}, extender)
