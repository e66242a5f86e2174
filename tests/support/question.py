"""A world and pods that want a place in it, asked once; the product prepares a world and asks it many times."""

from dataclasses import dataclass

from provisioner.apis.pods import Pod
from provisioner.scheduling.prepared import prepare
from provisioner.scheduling.problem import World
from provisioner.scheduling.result import Result


@dataclass(frozen=True, slots=True)
class Problem(World):
    """One question; `pods` are in any order."""

    pods: tuple[Pod, ...] = ()


def solve(problem: Problem) -> Result:
    """Give every pod a place, or the reasons why it has none."""
    return prepare(problem).solve(problem.pods)
