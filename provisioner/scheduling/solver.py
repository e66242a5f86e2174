"""The judge of what may run where: one question in, a result out, nothing else read or changed.

Equal pods are one class; classes get places by priority, then size. A class takes existing nodes first, then open
claims, then new ones; a claim stays every type on which its pods still fit, and is settled on the cheapest at the end.
What is tried once and fails is not tried again: room only shrinks, claims only narrow. So the cost is that of classes
times nodes touched, not of pods.

Source: core spec 3.4-3.11, planner spec 2. Differs from Karpenter: priorities count; equal pods are placed together, on
the claim opened first rather than the one with fewest pods; limits are charged by the planned type, not the largest;
hostname spread sees the true emptiest node.
"""

from provisioner.scheduling.prepared import prepare
from provisioner.scheduling.problem import Problem
from provisioner.scheduling.result import Result


def solve(problem: Problem) -> Result:
    """Give every pod a place, or the reasons why it has none; for who asks a world but once.

    The result depends on the problem's values only: not on the order of pods, pools, daemons and types. The order of
    bins is an order of preference.
    """
    return prepare(problem).solve(problem.pods)
