"""A takeover at an API server: resumable, killed at every write, and it never touches what is Karpenter's."""

from collections.abc import Callable
from typing import Any

import pytest

from provisioner.apis import ec2, names
from provisioner.cli.takeover.texts import status_lines
from provisioner.takeover.gathering import InputBuilder, read_cluster
from provisioner.takeover.progress import EVERYTHING, StepKind
from provisioner.takeover.starting import NEEDED, Takeover, TakeoverOutcome
from provisioner.values.errors import UndeterminedError
from tests.support import takeover
from tests.support.cluster import World
from tests.support.kube import Sent
from tests.support.worldserver import ServerDied, WorldServer

CLAIMS = [takeover.node_claim(name, takeover.node_pool(), takeover.node_class()) for name in ("a", "b", "c")]


class Operator:
    """What somebody does in another terminal while the command waits, and what the programs do then."""

    def __init__(self, server: WorldServer, clock: Any) -> None:
        self.server, self.clock, self.acts = server, clock, list[Callable[[], None]]()
        self.leads = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.clock, name)

    def sleep(self, seconds: float) -> None:
        self.clock.sleep(seconds)
        self.renew()
        if self.acts:
            self.acts.pop(0)()

    def stop_karpenter(self) -> None:
        self.server.change("deployments", "karpenter", {"spec": {"replicas": 0}}, "kube-system")
        self.server.change("leases", "karpenter-leader-election", {"spec": {"holderIdentity": None}}, "kube-system")

    def dovetail_leads(self) -> None:
        assert self.paused() == EVERYTHING, "held before the first leader acts"
        self.server.store("leases", takeover.lease("dovetail-1", names.OWN_NAMESPACE))
        self.leads = True

    def renew(self) -> None:
        """What the leader does all the time."""
        if self.leads:
            self.server.change(
                "leases",
                "karpenter-leader-election",
                {"spec": {"renewTime": str(self.clock.monotonic())}},
                names.OWN_NAMESPACE,
            )

    def dovetail_stamps(self) -> None:
        stamp = {names.NODEPOOL_HASH_VERSION: "v3"}
        self.server.change("nodepools", "default", {"metadata": {"annotations": stamp}})
        stamp = {ec2.HASH_VERSION_ANNOTATION: "v6"}
        self.server.change("ec2nodeclasses", "default", {"metadata": {"annotations": stamp}})

    def paused(self) -> str | None:
        found = self.server.get("configmaps", names.SETTINGS_CONFIGMAP, names.OWN_NAMESPACE)
        return None if found is None else found["data"].get("paused")


@pytest.fixture
def server() -> WorldServer:
    server = WorldServer(World())
    server.tell = False
    server.store("deployments", takeover.deployment())
    server.store("leases", takeover.lease("karpenter-1"))
    server.store("nodepools", takeover.node_pool(hashed="v2"))
    server.store("ec2nodeclasses", takeover.node_class())
    for one in CLAIMS:
        server.store("nodeclaims", one)
    return server


def operator(server: WorldServer) -> Operator:
    person = Operator(server, server.world.clock)
    person.acts = [person.stop_karpenter, person.dovetail_leads, person.dovetail_stamps]
    return person


def run(server: WorldServer, person: Operator, said: list[str] | None = None, **changes: Any) -> TakeoverOutcome:
    builder = InputBuilder("test", names.OWN_NAMESPACE)
    read_cluster(builder, server.client, b"CA", NEEDED)
    given = builder.built(0.0)
    assert given.unread == ()
    say = said.append if said is not None else lambda _: None
    return Takeover(server.client, person, say, given, **changes).run()


def test_the_first_run_holds_everything_and_waits_and_each_other_releases_one(server: WorldServer) -> None:
    person, said = operator(server), list[str]()
    outcome = run(server, person, said)
    assert outcome.step.kind is StepKind.RELEASE
    assert person.paused() == EVERYTHING
    assert any("kubectl -n kube-system scale deployment karpenter --replicas=0" in one for one in said)
    assert any("helm upgrade --install dovetail " in one for one in said)
    held = []
    for _ in range(5):
        outcome = run(server, person)
        held.append(person.paused())
    assert held == [
        "drift,consolidation,expiration,repair",
        "drift,consolidation,expiration",
        "drift,consolidation",
        "drift",
        None,
    ]
    assert outcome.step.kind is StepKind.DONE
    assert outcome.facts.standing.summary() == "3 of 3 NodeClaims from the start still exist, 0 new, 0 doubled"
    assert run(server, person).step.kind is StepKind.DONE


def test_nothing_is_written_but_our_two_config_maps(server: WorldServer) -> None:
    run(server, operator(server), every=True)
    assert {one.split(" ")[1] for one in server.done} == {
        "namespaces/dovetail-system",
        "configmaps/dovetail-settings",
        "configmaps/dovetail-takeover",
    }


def test_killed_at_every_write_it_comes_to_the_same(server: WorldServer) -> None:
    """And at no moment is anything released that was held before, but by the run that releases it."""
    runs = 0
    person = operator(server)
    while True:
        runs += 1
        server.dies_after = len(server.done) + 1
        try:
            outcome = run(server, person, every=True)
        except ServerDied:
            assert runs < 50
            continue
        break
    assert outcome.step.kind is StepKind.DONE
    assert person.paused() is None
    assert runs == len(server.done)
    assert [one for one in server.all("nodeclaims") if "deletionTimestamp" in one["metadata"]] == []


def test_a_lease_that_nobody_renews_is_waited_for_a_minute(server: WorldServer) -> None:
    person = operator(server)
    person.acts = [person.dovetail_leads, person.dovetail_stamps]
    began = server.world.clock.monotonic()
    assert run(server, person).step.kind is StepKind.RELEASE
    assert server.world.clock.monotonic() - began >= 60


def test_it_gives_up_where_nothing_happens_and_holds_everything(server: WorldServer) -> None:
    person = operator(server)
    person.acts = [lambda: None] * 100
    outcome = run(server, person, patience=10.0)
    assert (outcome.step.kind, outcome.is_late) == (StepKind.AWAIT_STOP, True)
    assert person.paused() == EVERYTHING


def test_what_a_user_had_paused_is_paused_in_the_end(server: WorldServer) -> None:
    body = {
        "metadata": {"name": names.SETTINGS_CONFIGMAP, "namespace": names.OWN_NAMESPACE},
        "data": {"paused": "drift", "a": "b"},
    }
    server.store("configmaps", body)
    person = operator(server)
    run(server, person, every=True)
    found = server.get("configmaps", names.SETTINGS_CONFIGMAP, names.OWN_NAMESPACE)
    assert found is not None
    assert found["data"] == {"paused": "drift", "a": "b"}


def test_what_a_user_pauses_while_an_activity_is_released_is_kept(server: WorldServer) -> None:
    person = operator(server)
    while person.paused() != "drift":
        run(server, person)

    def edited(sent: Sent) -> None:
        if sent.method == "PATCH" and sent.path.endswith(names.SETTINGS_CONFIGMAP):
            server.intercept = lambda _: None
            server.change(
                "configmaps", names.SETTINGS_CONFIGMAP, {"data": {"paused": "drift,launch"}}, names.OWN_NAMESPACE
            )

    server.intercept = edited
    run(server, person)
    assert person.paused() == "launch"


def test_what_a_user_had_paused_outlasts_a_takeover_that_was_given_back(server: WorldServer) -> None:
    metadata = {"namespace": names.OWN_NAMESPACE}
    held = {"metadata": {"name": names.SETTINGS_CONFIGMAP, **metadata}, "data": {"paused": EVERYTHING}}
    server.store("configmaps", held)
    record = {"phase": "back", "formerPause": "drift"}
    server.store("configmaps", {"metadata": {"name": names.TAKEOVER_CONFIGMAP, **metadata}, "data": record})
    person = operator(server)
    run(server, person, every=True)
    assert person.paused() == "drift"


def test_a_lease_of_a_leader_that_died_is_not_taken_for_dovetail(server: WorldServer) -> None:
    server.store("leases", takeover.lease("dovetail-0", names.OWN_NAMESPACE))
    person = operator(server)
    person.acts = [person.stop_karpenter, person.dovetail_stamps]
    outcome = run(server, person, patience=100.0)
    assert (outcome.step.kind, outcome.is_late) == (StepKind.AWAIT_LEADER, True)
    builder = InputBuilder("test", names.OWN_NAMESPACE)
    facts = Takeover(server.client, person, print, builder.built(0.0)).standing()
    assert "held by dovetail-0, which does not renew it" in "\n".join(status_lines(facts))
    person.acts = [person.dovetail_leads]
    assert run(server, person).step.kind is StepKind.RELEASE


def test_a_pause_that_somebody_took_away_is_set_again_before_dovetail_has_taken_over(server: WorldServer) -> None:
    """GitOps that has `paused: "true"` of its own, or a ConfigMap deleted by hand: the first leader would act."""
    person = operator(server)

    def reverted() -> None:
        server.change("configmaps", names.SETTINGS_CONFIGMAP, {"data": {"paused": "true"}}, names.OWN_NAMESPACE)

    person.acts = [person.stop_karpenter, reverted, person.dovetail_leads, person.dovetail_stamps]
    assert run(server, person).step.kind is StepKind.RELEASE
    assert person.paused() == EVERYTHING


def test_what_may_not_be_read_stops_it(server: WorldServer) -> None:
    person = operator(server)
    run(server, person)
    server.refuse["nodeclaims"] = 403
    builder = InputBuilder("test", names.OWN_NAMESPACE)
    with pytest.raises(UndeterminedError, match="may not be read"):
        Takeover(server.client, person, print, builder.built(0.0)).run()
    assert person.paused() == EVERYTHING


@pytest.mark.parametrize("provider", ["aws", "kwok"])
def test_what_the_provider_does_not_serve_is_not_waited_for(server: WorldServer, provider: str) -> None:
    kwok = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    person = operator(server)
    if provider == "aws":
        server.store("nodepools", takeover.node_pool("theirs", hashed="v2", nodeClassRef=kwok))
    else:
        person.acts.pop()  # it stamps no EC2NodeClass
        server.store("nodepools", takeover.node_pool("ours", nodeClassRef=kwok))
        ours = takeover.deployment("dovetail-provisioner", names.OWN_NAMESPACE, args=["provisioner", "--provider=kwok"])
        server.store("deployments", ours)
        server.store("ec2nodeclasses", takeover.node_class("unstamped") | {"metadata": {"name": "unstamped"}})
    assert run(server, person, patience=100.0).step.kind is StepKind.RELEASE
