"""The way back is what leaves a cluster, and the takeover is over after it."""

import pytest

from provisioner.apis import names
from provisioner.cli.takeover.back import give_back
from provisioner.cli.takeover.inputs import TakeoverStop
from provisioner.support.errors import UserError
from provisioner.takeover.gathering import InputBuilder
from provisioner.takeover.starting import Takeover
from provisioner.takeover.takeover_input import OWN_NAMESPACE
from tests.support.cluster import World
from tests.support.worldserver import WorldServer


class Departing:
    """What leaves a cluster, as far as it is asked here."""

    def __init__(self, problems: tuple[str, ...] = (), refusal: str = "") -> None:
        self.problems, self.refusal, self.calls = problems, refusal, list[str]()

    def stop_stamping(self) -> tuple[str, ...]:
        self.calls.append("stop stamping")
        return ()

    def keep_nodes(self, keep: object) -> tuple[str, ...]:
        if self.refusal:
            raise UserError(self.refusal)
        self.calls.append(f"keep nodes for {keep}")
        return self.problems


@pytest.fixture
def server() -> WorldServer:
    server = WorldServer(World())
    metadata = {"name": names.TAKEOVER_CONFIGMAP, "namespace": OWN_NAMESPACE}
    server.store("configmaps", {"metadata": metadata, "data": {"phase": "done", "started": "x"}})
    return server


def phase(server: WorldServer) -> str:
    found = server.get("configmaps", names.TAKEOVER_CONFIGMAP, OWN_NAMESPACE)
    assert found is not None
    text: str = found["data"]["phase"]
    return text


def run(server: WorldServer, departing: Departing, *, dry_run: bool = False) -> int:
    given = InputBuilder("test", OWN_NAMESPACE).built(0.0)
    return give_back(Takeover(server.client, server.world.clock, print, given), departing, "karpenter", dry_run=dry_run)


def test_nodes_are_left_to_karpenter_and_the_takeover_is_over(server: WorldServer) -> None:
    departing = Departing()
    assert (run(server, departing), phase(server)) == (0, "back")
    assert departing.calls == ["stop stamping", "keep nodes for karpenter"]


def test_what_is_left_to_the_user_is_a_finding(server: WorldServer) -> None:
    assert run(server, Departing(("a bare pod waits",))) == 1


def test_a_dry_run_ends_nothing(server: WorldServer) -> None:
    assert (run(server, Departing(), dry_run=True), phase(server)) == (0, "done")


def test_a_refusal_ends_nothing(server: WorldServer) -> None:
    with pytest.raises(TakeoverStop, match="scale it"):
        run(server, Departing(refusal="Flux manages the Deployment; scale it there"))
    assert phase(server) == "done"
