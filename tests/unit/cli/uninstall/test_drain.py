"""`--drain` against an API server in memory: what was arranged at its beginning stays so until the last node is gone."""

import msgspec
import pytest

from provisioner.apis import names
from provisioner.apis.reports import LEASE_NAME
from provisioner.cli.uninstall.drain import Drainage
from provisioner.state.pause import PAUSED
from provisioner.values.errors import RefusedError
from tests.support.cluster import World, claim, node, pool
from tests.support.kube import Sent
from tests.support.worldserver import WorldServer

SPACE = "dovetail-system"


def join(server: WorldServer, name: str) -> None:
    server.put(claim(name, provider_id=f"kwok://{name}", finalizers=["held"]), node(name, provider_id=f"kwok://{name}"))
    server.change("nodeclaims", name, {"status": {"nodeName": name}})


def test_what_a_user_pauses_at_the_same_moment_is_kept() -> None:
    world = World()
    server = WorldServer(world)
    server.tell = False
    server.store("configmaps", {"metadata": {"name": names.SETTINGS_CONFIGMAP, "namespace": SPACE}, "data": {}})
    join(server, "a")

    def edited(sent: Sent) -> None:
        if sent.method == "PATCH" and sent.path.endswith(names.SETTINGS_CONFIGMAP):
            server.intercept = lambda _: None
            server.change("configmaps", names.SETTINGS_CONFIGMAP, {"data": {PAUSED: "drift"}}, SPACE)

    server.intercept = edited

    def ends(seconds: float) -> None:
        world.clock.advance(seconds)
        server.change("nodeclaims", "a", {"metadata": {"finalizers": []}})

    world.clock.sleep = ends  # type: ignore[method-assign]
    Drainage(server.client, world.clock, SPACE, print, dry_run=False).run()
    found = server.get("configmaps", names.SETTINGS_CONFIGMAP, SPACE)
    assert found is not None
    assert found["data"] == {PAUSED: "drift,launch"}


def test_launches_stay_paused_and_nodes_that_join_meanwhile_are_cordoned() -> None:
    """GitOps that applies its own ConfigMap would have nodes launched for the evicted pods for ever, and pods move twice."""
    world = World()
    server = WorldServer(world)
    server.tell = False
    server.store("nodepools", msgspec.to_builtins(pool()))
    join(server, "a")
    drainage = Drainage(server.client, world.clock, SPACE, print, dry_run=False)
    seen: list[tuple[object, bool]] = []
    sleep = world.clock.sleep

    def meanwhile(seconds: float) -> None:
        sleep(seconds)
        settings = server.get("configmaps", names.SETTINGS_CONFIGMAP, SPACE)
        late = server.get("nodes", "b")
        seen.append((settings and settings["data"].get(PAUSED), bool(late and late["spec"].get("unschedulable"))))
        if len(seen) == 1:
            server.change("configmaps", names.SETTINGS_CONFIGMAP, {"data": {PAUSED: None}}, SPACE)
            join(server, "b")
        if len(seen) == 2:
            for one in "ab":
                server.change("nodeclaims", one, {"metadata": {"finalizers": []}})

    world.clock.sleep = meanwhile  # type: ignore[method-assign]
    drainage.run()
    assert seen[:2] == [("launch", False), ("launch", True)]


def test_at_each_look_launches_are_paused_once_before_nodeclaims_are_read() -> None:
    world = World()
    server = WorldServer(world)
    server.tell = False
    server.store("nodepools", msgspec.to_builtins(pool()))
    join(server, "a")
    asked = list[str]()

    def seen(sent: Sent) -> None:
        if sent.method == "GET" and sent.path.endswith((names.SETTINGS_CONFIGMAP, "/nodeclaims")):
            asked.append("settings" if sent.path.endswith(names.SETTINGS_CONFIGMAP) else "claims")

    def ends(seconds: float) -> None:
        world.clock.advance(seconds)
        asked.append("sleep")
        server.change("nodeclaims", "a", {"metadata": {"finalizers": []}})

    server.intercept = seen
    world.clock.sleep = ends  # type: ignore[method-assign]
    Drainage(server.client, world.clock, SPACE, print, dry_run=False).run()
    assert asked == ["settings", "claims", "claims", "sleep", "settings", "claims"], (
        "the second time to delete the next"
    )


@pytest.mark.parametrize("renews", [True, False])
def test_it_begins_where_a_provisioner_renews_its_lease_as_often_as_the_lease_says(renews: bool) -> None:
    world = World()
    server = WorldServer(world)
    server.tell = False
    spec = {"holderIdentity": "me", "renewTime": "1", "leaseDurationSeconds": 60}
    server.store("leases", {"metadata": {"name": LEASE_NAME, "namespace": SPACE}, "spec": spec})
    began, sleep = world.clock.monotonic(), world.clock.sleep

    def meanwhile(seconds: float) -> None:
        sleep(seconds)
        if renews and world.clock.monotonic() - began > 30:
            server.change("leases", LEASE_NAME, {"spec": {"renewTime": "2"}}, SPACE)

    world.clock.sleep = meanwhile  # type: ignore[method-assign]
    drainage = Drainage(server.client, world.clock, SPACE, print, dry_run=False)
    if renews:
        drainage.check(leave_pending=False)
    else:
        with pytest.raises(RefusedError, match="no provisioner renews Lease"):
            drainage.check(leave_pending=False)


def test_a_dry_run_tells_every_step_once_whatever_budgets_let_go_now() -> None:
    world = World()
    server = WorldServer(world)
    server.tell = False
    server.store("nodepools", msgspec.to_builtins(pool(disruption={"budgets": [{"nodes": "1"}]})))
    for one in "ab":
        join(server, one)
    before, said = len(server.done), list[str]()
    Drainage(server.client, world.clock, SPACE, said.append, dry_run=True).run()
    assert said == [
        "configmap/dovetail-settings paused=launch (dry run)",
        "node/a cordoned (dry run)",
        "node/b cordoned (dry run)",
        "nodeclaim/a deleted (dry run)",
        "nodeclaim/b deleted (dry run)",
    ]
    assert len(server.done) == before
