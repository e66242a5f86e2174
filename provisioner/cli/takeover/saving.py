"""What a takeover from Karpenter would save: the same pods on both sides.

Compared are the nodes of which every pod would find room on a node of a NodePool that can launch. Everything else is left out of both sides, and named.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from provisioner.apis import ec2, names
from provisioner.apis.core import Node
from provisioner.apis.karpenter import NodePool
from provisioner.apis.meta import condition
from provisioner.apis.pods import Pod, is_active, is_daemon, is_mirror
from provisioner.cli.plan.command import reported
from provisioner.cli.plan.fleet_summary import HOURS_A_MONTH
from provisioner.cli.plan.objects import PlanObjects
from provisioner.cli.plan.planning import PlanSettings
from provisioner.cli.plan.questions import is_worker
from provisioner.cli.plan.texts import PlanReport, saving
from provisioner.support.clock import Clock
from provisioner.values.printable import counted, listed

_ROUNDS: Final = 5
_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class TakeoverSaving:
    """A comparison.

    Attributes:
        report: the plan of the pods that are compared, and their current nodes; None where there is nothing to compare.
        pods: how many are compared.
        left_out: sentences: NodePools, nodes and pods that are on neither side.
    """

    report: PlanReport | None
    pods: int
    left_out: tuple[str, ...]

    def for_programs(self) -> dict[str, Any]:
        """As JSON, amounts in the catalogue's currency."""
        if self.report is None or self.report.current is None:
            return {"pods": 0, "leftOut": list(self.left_out)}
        fleet, current = self.report.plans[0].fleet, self.report.current
        return {
            "pods": self.pods,
            "currency": self.report.table.currency,
            "nodesNow": current.nodes,
            "perMonthNow": round(current.usd_per_hour * HOURS_A_MONTH, 2),
            "nodesPlanned": fleet.nodes,
            "perMonthPlanned": round(fleet.usd_per_hour * HOURS_A_MONTH, 2),
            "savingPerMonth": round(saving(current, fleet) * HOURS_A_MONTH, 2),
            "leftOut": list(self.left_out),
        }

    def lines(self) -> list[str]:
        """For people."""
        lines = [f"Left out: {one}" for one in self.left_out]
        if self.report is None or self.report.current is None:
            return ["There is nothing to compare.", *lines]
        found = self.for_programs()
        now, planned, money = found["perMonthNow"], found["perMonthPlanned"], found["currency"]
        saved = found["savingPerMonth"]
        end = (
            f"saves {saved:,.2f} {money} per month ({100 * saved / now:.0f} %)"
            if saved > 0 and now
            else f"costs {-saved:,.2f} {money} more per month"
            if saved
            else "costs the same"
        )
        head = [
            f"The same {counted(self.pods, 'pod')} on both sides:",
            f"  now      {counted(found['nodesNow'], 'node')}, {now:,.2f} {money} per month",
            f"  planned  {counted(found['nodesPlanned'], 'node')}, {planned:,.2f} {money} per month",
            f"This plan {end}.",
        ]
        return [*head, *lines, *(f"Note: {one}" for one in self.report.table.notes)]


def saving_of(objects: PlanObjects, catalogue: str, settings: PlanSettings, clock: Clock) -> TakeoverSaving:
    """Plan the pods that run anew, and compare. Cost: a plan, and another one for each round in which pods find no room; at most five.

    Raises:
        UserError: there is no such catalogue.
    """
    left_out = list(_problems(objects))
    pools = []
    for pool in objects.pools:
        why = _why_not(pool, objects)
        if why:
            left_out.append(f'NodePool "{pool.name}": {why}')
        else:
            pools.append(pool)
    static = {one.name for one in objects.pools if one.is_static}
    nodes = [
        one
        for one in objects.nodes
        if is_worker(one) and one.metadata.labels.get(names.NODEPOOL_LABEL, "") not in static
    ]
    for _ in range(_ROUNDS):
        some = _limited(objects, pools, nodes)
        counted_pods = [one for one in some.pods if _counts(one)]
        if not nodes or not pools or not counted_pods:
            break
        report = reported(some, catalogue, (), settings, clock, current=True)
        unserved = _unserved(report, some, nodes)
        if not unserved:
            return TakeoverSaving(report, len(counted_pods), tuple(left_out))
        gone = {one.metadata.name for one, _ in unserved}
        reasons = sorted({why for _, why in unserved})
        lost = sum(_counts(one) and one.node_name in gone for one in some.pods)
        named = listed(sorted(gone), _NAMED)
        left_out.append(f"{counted(lost, 'pod')} on {counted(len(gone), 'node')} ({named}): {'; '.join(reasons[:3])}")
        nodes = [one for one in nodes if one.metadata.name not in gone]
    return TakeoverSaving(None, 0, tuple(left_out))


def _counts(pod: Pod) -> bool:
    return is_active(pod) and not is_daemon(pod) and not is_mirror(pod)


def _problems(objects: PlanObjects) -> Iterator[str]:
    pending = sum(_counts(one) and not one.node_name for one in objects.pods)
    if pending:
        yield f"{counted(pending, 'pod')} without a node"


def _why_not(pool: NodePool, objects: PlanObjects) -> str:
    """Why a NodePool launches nothing; "" where it may."""
    if pool.metadata.deletion_timestamp is not None:
        return "it is being deleted"
    if pool.is_static:
        return "it is static"
    ready = condition(pool.status.conditions, names.READY)
    if ready is not None and ready.status == "False":
        return f"it is not Ready ({ready.message or ready.reason})"
    reference = pool.node_class_ref
    if reference.kind == ec2.KIND and objects.classes:
        its = objects.classes.get(reference.name)
        if its is None:
            return f'EC2NodeClass "{reference.name}" does not exist'
        ready = condition(its.status.conditions, names.READY)
        if ready is not None and ready.status == "False":
            return f'EC2NodeClass "{reference.name}" is not Ready ({ready.message or ready.reason})'
    zero = sorted(key for key, value in pool.spec.limits.items() if str(value) in ("0", "0m"))
    return f"its limit of {zero[0]} is 0" if zero else ""


def _limited(objects: PlanObjects, pools: Sequence[NodePool], nodes: Sequence[Node]) -> PlanObjects:
    """These NodePools and nodes, and what is on the nodes; nothing that is still to be made."""
    there = {one.metadata.name for one in nodes}
    return replace(
        objects,
        pools=list(pools),
        nodes=list(nodes),
        pods=[one for one in objects.pods if one.node_name in there],
        claims=[one for one in objects.claims if one.status.node_name in there],
        loose=[],
        workloads=[],
        problems=[],
    )


def _unserved(report: PlanReport, objects: PlanObjects, nodes: Sequence[Node]) -> list[tuple[Node, str]]:
    """The nodes that are not compared, each with why: one has no price, or a pod on it would find no room."""
    unpriced = {name for name, _ in report.current.unpriced} if report.current is not None else set()
    where = {one.key: one.node_name for one in objects.pods}
    without = {
        where.get(pod.key, ""): "a pod on it fits no NodePool that can launch"
        for left in report.plans[0].fleet.left
        for pod in left.pods
    }
    found = []
    for node in nodes:
        name = node.metadata.name
        if {name, node.metadata.labels.get(names.INSTANCE_TYPE_LABEL, name)} & unpriced:
            found.append((node, "the catalogue has no price for its instance type"))
        elif name in without:
            found.append((node, without[name]))
    return found
