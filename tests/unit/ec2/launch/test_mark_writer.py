from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.karpenter import NodeClaim
from provisioner.ec2.launch import launch_marks
from provisioner.ec2.launch.launch_marks import Mark
from provisioner.ec2.launch.mark_writer import Marked, Marker, MarkRefusedError, MarkUnknownError
from tests.support.launching import Answer, Claims

NEW = Mark("new", 1, 0)


@dataclass
class Stage:
    """Claims, and a marker that holds the attempts of these tags for spent."""

    claims: Claims = field(default_factory=Claims)
    spent: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.marker = Marker(self.claims.write, self.claims.read, self.spent.__contains__)

    def mark(self, name: str) -> Mark | None:
        return launch_marks.mark_of(self.claims.get(name))

    def commit(self, count: int, answers: dict[int, Answer], deaf: bool = False) -> tuple[list[str], Marked]:
        made = self.claims.add(count)
        self.claims.answers, self.claims.deaf = answers, deaf
        wanted = {Mark("b", 1, number): self.claims.get(name) for number, name in enumerate(made)}
        try:
            return made, self.marker.commit(wanted)
        finally:
            self.marker.close()


def touched(stage: Stage, name: str, **metadata: Any) -> NodeClaim:
    """The claim as it was read before somebody changed it."""
    before = stage.claims.get(name)
    stage.claims.change(name, **metadata)
    return before


@pytest.mark.parametrize("answer", [Answer.LOST, Answer.REFUSED, Answer.NEVER])
def test_one_lost_answer_is_found_out(answer: Answer) -> None:
    stage = Stage()
    (name,) = stage.claims.add(1)
    stage.claims.answers = {1: answer}
    written = stage.marker.put(stage.claims.get(name), NEW)
    assert written == stage.claims.get(name)
    assert stage.mark(name) == NEW


def test_a_write_that_comes_late_changes_nothing_any_more() -> None:
    stage = Stage()
    (name,) = stage.claims.add(1)
    stage.claims.answers = {1: Answer.LATE}
    stage.marker.put(stage.claims.get(name), NEW)
    later = Mark("later", 2, 0)
    stage.spent.add(NEW.tag)
    stage.marker.put(stage.claims.get(name), later)
    for write in stage.claims.late:
        write()
    assert stage.mark(name) == later


def test_nobody_knows_where_every_answer_is_lost() -> None:
    stage = Stage()
    (name,) = stage.claims.add(1)
    stage.claims.answers = dict.fromkeys(range(1, 9), Answer.NEVER)
    with pytest.raises(MarkUnknownError):
        stage.marker.put(stage.claims.get(name), NEW)


def test_nobody_knows_where_the_claim_cannot_be_read() -> None:
    stage = Stage()
    (name,) = stage.claims.add(1)
    stage.claims.answers, stage.claims.deaf = {1: Answer.LOST}, True
    with pytest.raises(MarkUnknownError):
        stage.marker.put(stage.claims.get(name), NEW)


CHANGED: dict[str, Callable[[Stage, str], NodeClaim]] = {
    "somebody else labelled it": lambda stage, name: touched(stage, name, labels={"a": "b"}),
    "it has the mark of an attempt that is spent": lambda stage, name: touched(
        stage, name, annotations={names.LAUNCH_ANNOTATION: "old/1/0"}
    ),
}


@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED)
def test_a_claim_that_changed_is_marked_all_the_same(change: Callable[[Stage, str], NodeClaim]) -> None:
    stage = Stage(spent={"old/1"})
    (name,) = stage.claims.add(1)
    stage.marker.put(change(stage, name), NEW)
    assert stage.mark(name) == NEW


def launched(stage: Stage, name: str) -> NodeClaim:
    before = stage.claims.get(name)
    with_instance = msgspec.structs.replace(before.status, provider_id="aws:///a/i-1")
    stage.claims.change(name)
    stage.claims.put(msgspec.structs.replace(stage.claims.get(name), status=with_instance))
    return before


REFUSED: dict[str, Callable[[Stage, str], NodeClaim]] = {
    "it is in another launch": lambda stage, name: touched(
        stage, name, annotations={names.LAUNCH_ANNOTATION: "other/1/0"}
    ),
    "it is being deleted": lambda stage, name: touched(
        stage, name, deletion_timestamp=stage.claims.get(name).metadata.creation_timestamp
    ),
    "it has an instance": launched,
    "another has its name": lambda stage, name: touched(stage, name, uid="another"),
}


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED)
def test_what_is_not_marked(change: Callable[[Stage, str], NodeClaim]) -> None:
    stage = Stage()
    (name,) = stage.claims.add(1)
    before = change(stage, name)
    there = stage.mark(name)
    with pytest.raises(MarkRefusedError):
        stage.marker.put(before, NEW)
    assert stage.mark(name) == there


def test_all_are_marked_and_ordinal_0_comes_last() -> None:
    stage = Stage()
    made, done = stage.commit(4, {})
    assert [str(mark) for mark in done.written] == ["b/1/0", "b/1/1", "b/1/2", "b/1/3"]
    versions = {name: int(stage.claims.get(name).metadata.resource_version) for name in made}
    assert max(versions, key=versions.__getitem__) == made[0]
    assert not done.left
    assert not done.turned_away


@pytest.mark.parametrize("gone", [0, 1, 3])
def test_ordinals_of_claims_that_cannot_be_marked_go_to_others(gone: int) -> None:
    stage = Stage()
    made = stage.claims.add(4)
    wanted = {Mark("b", 1, number): stage.claims.get(name) for number, name in enumerate(made)}
    stage.claims.change(made[gone], deletion_timestamp=stage.claims.get(made[gone]).metadata.creation_timestamp)
    done = stage.marker.commit(wanted)
    assert [mark.ordinal for mark in done.written] == [0, 1, 2]
    assert {claim.metadata.name for claim in done.written.values()} == {*made} - {made[gone]}
    assert [claim.metadata.name for claim, _ in done.turned_away] == [made[gone]]
    for mark, claim in done.written.items():
        assert stage.mark(claim.metadata.name) == mark


@pytest.mark.parametrize(("count", "unsure"), [(1, 1), (2, 1), (2, 2), (4, 1), (4, 3), (4, 4)])
def test_nothing_is_launched_by_an_attempt_with_a_mark_that_nobody_knows_of(count: int, unsure: int) -> None:
    """And whoever is not in doubt may be launched by another one."""
    stage = Stage()
    made, done = stage.commit(count, {unsure: Answer.LOST}, deaf=True)
    assert not done.written
    away = {claim.metadata.name for claim, _ in done.turned_away}
    assert len(away) == 1
    assert {claim.metadata.name for claim in done.left} == {*made} - away


def test_a_mark_is_taken_off_unless_it_is_another_by_now() -> None:
    stage = Stage()
    first, second = (stage.claims.get(name) for name in stage.claims.add(2))
    first, second = stage.marker.put(first, NEW), stage.marker.put(second, Mark("new", 1, 1))
    stage.spent.add(NEW.tag)
    stage.marker.put(second, Mark("later", 2, 0))
    stage.marker.take_off([first, second])
    assert stage.mark(first.metadata.name) is None
    assert stage.mark(second.metadata.name) == Mark("later", 2, 0)
