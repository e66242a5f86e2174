"""Rows of the golden tests: a problem, and what must be true of its answer, in short sentences.

    3 nodes                    so many are made
    p on n1                       the pod is on that existing node
    p on new small                ... on a node to be made, of that type
    p has zone=b                  the node of the pod has that label (zone, kind, host, or a full key)
    web by zone: 2 2 1            pods whose name begins so, counted by that label, the fullest first
    p q together                  on one node
    p q in one zone               in one zone
    p q r apart                   on a node each
    p left: some words            without a place, and the reason has these words
    2 of web left: some words     so many whose name begins so
    nothing left                  every pod has a place

Every row is judged by the naive checker too, and solved again with its input in another order.
"""

import random
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from provisioner.apis import names
from provisioner.scheduling.problem import SchedulingPool
from provisioner.scheduling.result import Result
from tests.support import checker
from tests.support.question import Problem, solve

SHORT = {
    "zone": names.ZONE_LABEL,
    "kind": names.CAPACITY_TYPE_LABEL,
    "host": names.HOSTNAME_LABEL,
    "arch": names.ARCH_LABEL,
    "type": names.INSTANCE_TYPE_LABEL,
    "pool": names.NODEPOOL_LABEL,
}


@dataclass(frozen=True)
class Row:
    """A problem, and sentences about its answer."""

    problem: Problem
    want: tuple[str, ...]


def row(problem: Problem, *want: str) -> Row:
    return Row(problem, want)


@dataclass(frozen=True)
class Place:
    """Where a pod is: the existing node's name or "new TYPE", which one, and its labels."""

    name: str
    node: str
    labels: Mapping[str, str]


def check(case: Row) -> None:
    """The sentences hold, the checker finds nothing, and the order of input does not matter."""
    result = solve(case.problem)
    wrong = [text for text in case.want if not _holds(case.problem, result, text)]
    wrong += checker.violations(case.problem, result)
    assert not wrong, "\n".join([*wrong, *_told(case.problem, result)])
    again = solve(mixed(case.problem))
    assert gist(again) == gist(result)


def gist(result: Result) -> object:
    """What is where, and why not; comparable."""
    return (
        [
            (claim.pool, claim.planned_type, claim.planned_zone, [pod.name for pod in claim.pods])
            for claim in result.claims
        ],
        {name: [pod.name for pod in pods] for name, pods in result.existing.items()},
        [(one.pod.name, str(one)) for one in result.unplaced],
    )


def mixed(asked: Problem) -> Problem:
    """The same question with everything without a meant order in another one."""
    chance = random.Random(len(asked.pods))

    def types_mixed(one: SchedulingPool) -> SchedulingPool:
        return replace(one, instance_types=tuple(chance.sample(one.instance_types, len(one.instance_types))))

    return replace(
        asked,
        pods=tuple(chance.sample(asked.pods, len(asked.pods))),
        pools=tuple(types_mixed(one) for one in chance.sample(asked.pools, len(asked.pools))),
        daemons=tuple(chance.sample(asked.daemons, len(asked.daemons))),
    )


def places(problem: Problem, result: Result) -> dict[str, Place]:
    """Where every placed pod is, by name."""
    found = {}
    bins = {one.name: one for one in problem.bins}
    for name, pods in result.existing.items():
        labels = {names.HOSTNAME_LABEL: name, **bins[name].labels}
        found.update({pod.name: Place(name, name, labels) for pod in pods})
    for number, claim in enumerate(result.claims):
        option = checker.nominal(claim, checker.options_of(problem, claim))
        node = checker.claim_name(number, claim)
        labels = {**(option.labels if option else {}), names.HOSTNAME_LABEL: node}
        found.update({pod.name: Place(f"new {claim.planned_type}", node, labels) for pod in claim.pods})
    return found


def _told(problem: Problem, result: Result) -> list[str]:
    """The answer in the words of rows."""
    lines = [
        f"{name} on {place.name} ({place.node}, {place.labels.get(SHORT['zone'])}, {place.labels.get(SHORT['kind'])})"
        for name, place in places(problem, result).items()
    ]
    return [*lines, *(f"{one.pod.name} left: {one}" for one in result.unplaced)]


def _holds(problem: Problem, result: Result, text: str) -> bool:
    where = places(problem, result)
    left = {one.pod.name: str(one) for one in result.unplaced}
    if text == "nothing left":
        return not left
    if found := re.fullmatch(r"(\d+) nodes?", text):
        return len(result.claims) == int(found[1])
    if found := re.fullmatch(r"(\d+) of (\S+) left: ?(.*)", text):
        reasons = [why for name, why in left.items() if name.startswith(found[2])]
        return len(reasons) == int(found[1]) and all(found[3] in why for why in reasons)
    if found := re.fullmatch(r"(\S+) left: ?(.*)", text):
        return found[2] in left.get(found[1], "")
    if found := re.fullmatch(r"(\S+) on (.+)", text):
        return found[1] in where and where[found[1]].name == found[2]
    if found := re.fullmatch(r"(\S+) has ([^=]+)=(.*)", text):
        return found[1] in where and where[found[1]].labels.get(SHORT.get(found[2], found[2])) == found[3]
    if found := re.fullmatch(r"(\S+) by (\S+): ([\d ]+)", text):
        key = SHORT.get(found[2], found[2])
        counts = Counter(place.labels.get(key) for name, place in where.items() if name.startswith(found[1]))
        return sorted(counts.values(), reverse=True) == [int(one) for one in found[3].split()]
    if found := re.fullmatch(r"(.+) in one zone", text):
        zones = {where[name].labels.get(SHORT["zone"]) if name in where else name for name in found[1].split()}
        return len(zones) == 1
    if found := re.fullmatch(r"(.+) (together|apart)", text):
        wanted = found[1].split()
        nodes = {where[name].node for name in wanted if name in where}
        placed = all(name in where for name in wanted)
        return placed and len(nodes) == (1 if found[2] == "together" else len(wanted))
    raise AssertionError(f"no such sentence: {text}")
