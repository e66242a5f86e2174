"""A node that is to be rebooted, to which anything may happen in any order, and what a reboot promises whatever happens.

The steps are real (`disruption.reboots.steps`), the shell around them is the smallest one. Leaders come and go, also between a write and a call; the cloud
answers as it likes; kubelets report boot IDs and readiness that are not true. Each mutant is caught.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.apis import names
from provisioner.apis import reboot as records
from provisioner.apis.reboot import (
    MOST_REBOOTS,
    NO_REBOOTS,
    RebootEnd,
    RebootEpisode,
    RebootIntent,
    RebootRecord,
    encode_reboots,
    reboots_of,
)
from provisioner.disruption.reboots import steps
from provisioner.disruption.reboots.steps import (
    CALLING,
    RECOVERY,
    SHORTEST_DRAIN,
    NextReboot,
    RebootFacts,
    RebootNode,
    RebootStep,
    Refusal,
    next_reboot_step,
)
from tests.support.clock import NOON
from tests.support.cluster import claim

LIVES: Final = 3000
"""That a mutant is given."""
EVENTS: Final = 60
SECOND: Final = timedelta(seconds=1)
FAILURES: Final = (RebootEnd.PROVIDER_ERROR, RebootEnd.RECOVERY_TIMEOUT)
LONG: Final = RECOVERY + CALLING + timedelta(minutes=10)


class Broken(AssertionError):  # noqa: N818  (a verdict)
    """A promise was broken."""


def old_boot_id(episode: RebootEpisode) -> str:
    """Judged by other means than `steps`."""
    return (episode.intent or episode).boot_id


def promised(what: bool, why: str) -> None:
    if not what:
        raise Broken(why)


@dataclass
class Process:
    """One leader: what it knows is gone with it.

    Attributes:
        since: what it has watched last, and since when.
    """

    name: str
    called: set[tuple[datetime, int]] = field(default_factory=set)
    refusal: Refusal | None = None
    since: tuple[object, datetime] | None = None


@dataclass
class Life:
    """One NodeClaim and its Node, in which only `draw` decides what happens."""

    draw: random.Random
    now: datetime = NOON
    record: RebootRecord = NO_REBOOTS
    told: str = ""
    away: bool = False
    pre_boot_id: str = ""
    node: RebootNode = field(default_factory=lambda: RebootNode("a", ready=True, initialized=True))
    ill: bool = True
    held: str = ""
    left: int = 3
    there: bool = True
    leader: Process = field(default_factory=lambda: Process("p0"))
    processes: int = 1
    calls: Counter[tuple[datetime, int]] = field(default_factory=Counter)
    sent: list[datetime] = field(default_factory=list)
    rebooted: list[datetime] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    refusing: bool = False

    def facts(self) -> RebootFacts:
        intent = self.record.episode.intent if self.record.episode is not None else None
        phase = (self.record.episode, self.told)
        if self.leader.since is None or self.leader.since[0] != phase:
            self.leader.since = phase, self.now
        return RebootFacts(
            now=self.now,
            by=self.leader.name,
            record=self.record,
            told=self.told,
            pre_boot_id=self.pre_boot_id,
            marked=bool(self.pre_boot_id),
            away=self.away,
            node=self.node if self.there else None,
            ill=self.ill,
            held=self.held,
            left=self.left,
            called=intent is not None and (intent.at, intent.attempt) in self.leader.called,
            refusal=self.leader.refusal,
            watched=self.now - self.leader.since[1],
        )

    def begin(self) -> None:
        """Repair asks for a reboot, as it may."""
        if self.record.episode is None and self.record.may_begin(self.now) and self.ill:
            episode = RebootEpisode(
                requested=self.now,
                condition="Gpu",
                boot_id=self.node.boot_id,
                grace_seconds=self.draw.choice((None, 0, 2, 60)),
            )
            kept = self.record.kept(self.now) or NO_REBOOTS
            self.record = RebootRecord(episode=episode, times=kept.times)

    def step(self) -> NextReboot:
        """One step of the leader, which may die in its midst."""
        facts = self.facts()
        following = next_reboot_step(facts)
        self.log.append(f"{self.now:%H:%M:%S} {self.leader.name} {following.step.value} {following.why}")
        episode = self.record.episode
        match following.step:
            case RebootStep.CLEAR:
                promised(episode is None, "marks were cleared of a reboot that goes on")
                promised(not (self.told and self.pre_boot_id), "what Karpenter may have called for was cleared")
                self.told, self.pre_boot_id, self.away = "", "", False
                self.node = replace(self.node, closed=False)
            case RebootStep.ADOPT:
                intent = RebootIntent(self.pre_boot_id, 1, self.now, "")
                adopted = RebootEpisode(requested=self.now, condition="", boot_id=self.pre_boot_id, intent=intent)
                self.record = RebootRecord(episode=adopted, times=(self.now,))
            case RebootStep.ANNOUNCE:
                self.told = names.REBOOT_REQUESTED
            case RebootStep.CLOSE:
                self.node = replace(self.node, closed=True)
            case RebootStep.DRAIN:
                promised(self.node.closed, "pods were asked to leave a Node that takes others")
                self.left = max(0, self.left - self.draw.randrange(2))
            case RebootStep.INTEND:
                self._intend(following)
            case RebootStep.CALL:
                self._call()
            case RebootStep.ISSUED:
                self.told, self.away = names.REBOOT_ISSUED, True
                self.node = replace(self.node, initialized=False)
            case RebootStep.OPEN:
                promised(
                    episode is not None and (episode.end is not None or self.node.boot_id != old_boot_id(episode)),
                    "the Node was opened before it was rebooted",
                )
                self.node = replace(self.node, closed=False)
            case RebootStep.END:
                self._end(following)
            case RebootStep.CONCLUDE:
                self.told, self.away = "", False
            case RebootStep.DROP:
                promised(episode is not None and episode.end is not None, "a reboot was forgotten that goes on")
                promised(
                    episode is None or episode.end is None or episode.end not in FAILURES, "a failed one was forgotten"
                )
                self.record = self.record.kept(self.now) or NO_REBOOTS
            case _:
                promised(following.until is None or following.until > self.now, "it waits for what is past")
        return following

    def _intend(self, following: NextReboot) -> None:
        episode = self.record.episode
        promised(episode is not None and episode.end is None, "a call was intended without a reboot")
        assert episode is not None
        promised(self.node.closed and self.there, "a call was intended for a Node that takes pods")
        promised(self.told != "", "a call was intended of which nothing was said")
        promised(self.ill and not self.held, "a call was intended for a healthy node")
        promised(self.now - episode.requested >= SHORTEST_DRAIN, "a call was intended at once")
        promised(
            episode.intent is not None
            or not self.left
            or (
                episode.grace_seconds is not None
                and self.now - episode.requested >= timedelta(seconds=episode.grace_seconds)
            ),
            "a call was intended while pods were to be waited for",
        )
        promised(
            episode.intent is None
            or (self.leader.refusal is not None and self.leader.refusal.attempt == episode.intent.attempt),
            "another call was intended though the one before may have had its effect",
        )
        intent = RebootIntent(self.node.boot_id, following.attempt, self.now, self.leader.name)
        self.record = self.record.intended(intent)

    def _call(self) -> None:
        intent = self.record.episode.intent if self.record.episode is not None else None
        promised(intent is not None, "a call was made that nobody had written")
        assert intent is not None
        key = (intent.at, intent.attempt)
        self.leader.called.add(key)
        self.calls[key] += 1
        promised(self.calls[key] == 1, "a call was made twice")
        promised(intent.by == self.leader.name, "a call was made of another leader's intent")
        self.sent.append(self.now)
        answer = self.draw.choice(
            ("refused", "final") if self.refusing else ("done", "lost", "nothing", "refused", "final")
        )
        if answer in ("refused", "final"):
            self.leader.refusal = Refusal(answer == "final", intent.attempt, self.now)
            return
        if answer != "nothing":
            self.rebooted.append(self.now)
            if self.draw.random() < 0.5:
                self.node = replace(self.node, boot_id=f"boot-{len(self.rebooted)}", ready=self.draw.random() < 0.5)

    def _end(self, following: NextReboot) -> None:
        episode = self.record.episode
        assert following.end is not None
        assert episode is not None
        match following.end:
            case RebootEnd.SUCCEEDED:
                promised(
                    self.there and self.node.ready and self.node.boot_id != old_boot_id(episode),
                    "it succeeded without a reboot",
                )
            case RebootEnd.CALLED_OFF:
                promised(
                    episode.intent is None
                    or (self.leader.refusal is not None and self.leader.refusal.attempt == episode.intent.attempt),
                    "it was called off after the call",
                )
            case RebootEnd.RECOVERED:
                promised(episode.end is not None and self.node.ready and not self.ill, "it recovered though it is ill")
            case RebootEnd.PROVIDER_ERROR:
                promised(self.leader.refusal is not None, "the cloud refused nothing")
            case RebootEnd.RECOVERY_TIMEOUT:
                since = episode.intent.at if episode.intent is not None else episode.requested
                promised(self.now - since >= RECOVERY, "it failed before its time")
        self.record = self.record.ended(following.end)
        self.leader.refusal = None

    # ------------------------------------------------------------------ what happens

    def happens(self) -> None:
        """Something happens beside the leader."""
        match self.draw.randrange(12):
            case 0 | 1:  # another leader, at any moment: also between a write and the call
                self.leader = Process(f"p{self.processes}")
                self.processes += 1
            case 2 | 3 | 4:
                self.now += SECOND * self.draw.choice((0.5, 1, 3, 10, 60, 400))
            case 5:  # a kubelet that lies, or a reboot that ends
                old = self.record.episode.boot_id if self.record.episode is not None else "a"
                self.node = replace(self.node, boot_id=self.draw.choice(("", old, "b", "c", self.node.boot_id)))
            case 6:
                self.node = replace(self.node, ready=self.draw.random() < 0.5)
            case 7:
                self.ill = self.draw.random() < 0.8
            case 8:
                self.held = self.draw.choice(("", "", "paused"))
            case 9:
                self.there = self.draw.random() < 0.8
            case 10:
                self.begin()
            case _:
                self.node = replace(self.node, closed=self.draw.random() < 0.7, initialized=self.draw.random() < 0.5)

    def settle(self) -> None:
        """Nothing more happens, and the leader goes on for as long as it takes."""
        self.held, end = "", self.now + LONG
        while self.now < end:
            following = self.step()
            if following.step is RebootStep.NOTHING:
                break
            if following.until is not None:
                self.now = following.until
            if following.step is RebootStep.DRAIN:
                self.left = 0
        promised(not self.record.under_way, "it goes on for ever")
        if self.record.episode is None:
            promised(not self.told and not (self.there and self.node.closed), "marks are left of a reboot that is over")


def live(seed: int) -> Life:
    """A life; raises Broken."""
    draw = random.Random(seed)
    life = Life(draw, refusing=draw.random() < 0.2)
    if draw.random() < 0.2:  # taken over from Karpenter
        life.told = draw.choice((names.REBOOT_REQUESTED, names.REBOOT_ISSUED))
        life.pre_boot_id = draw.choice(("", "a", "z"))
        life.node = replace(life.node, closed=draw.random() < 0.8)
    else:
        life.begin()
    try:
        for _ in range(EVENTS):
            for _ in range(draw.randrange(4)):
                life.step()
            life.happens()
        life.settle()
        reboots = [life.record.times, *([life.sent] if life.sent else [])]
        for some in reboots:
            promised(all(one <= life.now for one in some), "a time lies ahead")
        intended = Counter(at for at, _ in life.calls)
        promised(all(many == 1 for many in intended.values()), "an intent was used twice")
    except Broken as error:
        raise Broken(f"{error} (seed {seed})\n" + "\n".join(life.log[-30:])) from None
    return life


@given(st.integers(0, 10**9))
def test_a_reboot_keeps_what_it_promises(seed: int) -> None:
    """See `promised`: one call for an intent, by who wrote it; an end within its time; nothing is left over."""
    live(seed)


def test_lives_come_to_every_step_and_every_end() -> None:
    ends: Counter[str] = Counter()
    for seed in range(400):
        for line in live(seed).log:
            ends[line.split(maxsplit=2)[2].split("  ")[0].split(" its ")[0].split(" the ")[0].strip()] += 1
    assert {step.value for step in RebootStep} <= set(ends), ends


@given(st.lists(st.integers(0, 200_000), max_size=8))
def test_no_more_than_two_reboots_begin_within_a_day(starts: list[int]) -> None:
    record, begun = NO_REBOOTS, list[datetime]()
    for after in sorted(starts):
        now = NOON + SECOND * after
        if not record.may_begin(now):
            continue
        episode = RebootEpisode(requested=now, condition="Gpu", boot_id="a")
        record = RebootRecord(episode=episode, times=record.times).intended(RebootIntent("a", 1, now))
        begun.append(now)
        record = record.ended(RebootEnd.SUCCEEDED).kept(now) or NO_REBOOTS
    for first in begun:
        assert sum(first <= one < first + records.HISTORY for one in begun) <= MOST_REBOOTS


@given(st.integers(0, 10**9))
def test_a_record_is_read_as_it_was_written(seed: int) -> None:
    record = live(seed).record
    written = claim("n", annotations={names.REBOOT_ANNOTATION: encode_reboots(record)})
    assert reboots_of(written) == record


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"v":2}', '{"v":1,"times":["2026-11-21T10:00:00"]}', "x" * 5000, '{"v":1,"episode":{}}']
)
def test_a_record_that_cannot_be_read_is_none(text: str) -> None:
    assert reboots_of(claim("n", annotations={names.REBOOT_ANNOTATION: text})) == NO_REBOOTS


# ---------------------------------------------------------------------- mutants

Patch = Callable[[pytest.MonkeyPatch], None]


def _with_facts(**changed: Any) -> Patch:
    """The steps see facts that are not so."""
    real = steps.next_reboot_step

    def blind(facts: RebootFacts) -> NextReboot:
        return real(replace(facts, **{key: one(facts) if callable(one) else one for key, one in changed.items()}))

    return lambda patch: patch.setitem(globals(), "next_reboot_step", blind)


def _attribute(owner: Any, name: str, value: Any) -> Patch:
    assert hasattr(owner, name)
    return lambda patch: patch.setattr(owner, name, value)


def _own_intent(facts: RebootFacts) -> str:
    """Whoever finds an intent takes it for its own."""
    episode = facts.record.episode
    return episode.intent.by if episode is not None and episode.intent is not None else facts.by


def _always_refused(facts: RebootFacts) -> Refusal | None:
    """No answer counts as a refusal."""
    episode = facts.record.episode
    if episode is None or episode.intent is None or not facts.called:
        return None
    return facts.refusal or Refusal(final=False, attempt=episode.intent.attempt, at=facts.now - timedelta(minutes=2))


def _other_boot_id(facts: RebootFacts) -> RebootNode | None:
    """Every Node seems to have been rebooted."""
    return None if facts.node is None else replace(facts.node, boot_id=facts.node.boot_id + "'")


MUTANTS: Final[dict[str, Patch]] = {
    "who finds an intent calls": _with_facts(by=_own_intent),
    "the call is not remembered": _with_facts(called=False),
    "no answer is a refusal": _with_facts(refusal=_always_refused),
    "a refusal counts for the next attempt too": _with_facts(
        refusal=lambda facts: (
            facts.refusal
            and replace(
                facts.refusal,
                attempt=facts.record.episode.intent.attempt
                if facts.record.episode and facts.record.episode.intent
                else 1,
            )
        )
    ),
    "every boot ID is another one": _with_facts(node=_other_boot_id),
    "no boot ID is another one": _attribute(steps, "old_boot_id", lambda _: ""),
    "readiness is not asked": _with_facts(node=lambda facts: facts.node and replace(facts.node, ready=True)),
    "it waits for ever": _attribute(steps, "RECOVERY", timedelta(days=400)),
    "it waits for less than it should": _attribute(steps, "RECOVERY", timedelta(minutes=10)),
    "nothing is drained": _with_facts(left=0),
    "the call is made at once": _attribute(steps, "SHORTEST_DRAIN", timedelta(0)),
    "a Node that is open is rebooted": _with_facts(node=lambda facts: facts.node and replace(facts.node, closed=True)),
    "a pause is not heard": _with_facts(held=""),
    "a healthy node is rebooted": _with_facts(ill=True),
    "what Karpenter has called for is forgotten": _with_facts(pre_boot_id=""),
    "it is not said": _with_facts(told=lambda facts: facts.told or names.REBOOT_REQUESTED),
    "failures are forgotten": _attribute(RebootEnd, "failed", property(lambda _: False)),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_caught(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[mutant](monkeypatch)
    for seed in range(LIVES):
        try:
            live(seed)
        except Broken:
            return
    raise AssertionError(f"no life of {LIVES} catches it")


def test_steps_can_be_compared() -> None:
    assert NextReboot(RebootStep.AWAIT, why="a") == NextReboot(RebootStep.AWAIT, why="b")
    assert msgspec.json.decode(encode_reboots(NO_REBOOTS)) == {}
