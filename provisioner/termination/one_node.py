"""Whether pods that must all run on one node leave it together, or stay until its drain ends. Pure.

Of a PodGroup with the topology key kubernetes.io/hostname, kube-scheduler places no pod elsewhere while another one runs on the node. So where
PodDisruptionBudgets or do-not-disrupt keep some of them, the others gain nothing by leaving first: they would wait for the end of the drain, at which
those that are left are deleted.
"""

from collections.abc import Collection
from datetime import datetime

from provisioner.apis.budget_index import PodBudgets
from provisioner.apis.core import AnyPodGroup, PodGroup
from provisioner.apis.names import HOSTNAME_LABEL, normalized_label
from provisioner.apis.pods import Pod, is_evictable
from provisioner.state.groups import Group
from provisioner.values.message import Said


def stays_together(
    group: Group, told_by: AnyPodGroup | None, here: Collection[Pod], budgets: PodBudgets, now: datetime
) -> str:
    """Why a pod of a group is not asked to leave before the others can, as users read it; "" where it is.

    Where any of them has left or is leaving the others follow as they may: waiting longer helps nobody then.

    Args:
        group: its pods, counted.
        told_by: the object that tells of it.
        here: those of its pods on the node that have not finished.
        budgets: PodDisruptionBudgets.
        now: the instant.

    Cost: O(these).
    """
    if not isinstance(told_by, PodGroup) or normalized_label(told_by.topology_key) != HOSTNAME_LABEL:
        return ""
    if group.scheduled < group.members or any(one.deleted is not None for one in here):
        return ""
    if budgets.waves(here) <= 1 and all(is_evictable(one, now) for one in here):
        return ""
    return Said(
        f"the {len(here)} pods of PodGroup {group.key} must run on one node: they are evicted when all of them can be evicted at the same time, else "
        "deleted when the drain ends"
    )
