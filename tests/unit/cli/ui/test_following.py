"""The leader's stream over a real connection, to the board that a browser reads."""

from contextlib import closing
from typing import cast

import msgspec
import pytest

from provisioner.cli.ui.upstream import BOUNDS, events_in
from provisioner.cli.why import leader
from provisioner.kube.config import ApiConnection
from provisioner.support.clock import SystemClock
from provisioner.ui.page import Page
from provisioner.ui.viewers import MOST_VIEWERS
from provisioner.values.errors import UndeterminedError
from tests.support.eventually import eventually
from tests.unit.ui.test_viewers import House


class Tokened:
    """Credentials with the token of a user."""

    def __init__(self, user: str) -> None:
        self.user = user

    def authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.user}"}


def test_pages_come_over_a_connection_for_those_who_may_see_them() -> None:
    house = House()
    house.server.start()
    house.viewers.start()
    url = f"http://127.0.0.1:{house.server.port}"

    def follow(user: str) -> Page:
        def find() -> leader.Leader:
            return leader.at(url, cast("ApiConnection", Tokened(user)), SystemClock(), BOUNDS)

        source, pieces = leader.follow(find, "/page?namespace=default")
        assert source == f"the leader at {url}"
        with closing(pieces):  # type: ignore[type-var]  # a generator
            return msgspec.json.decode(next(events_in(pieces)), type=Page)

    try:
        assert [one.name for one in follow("admin").nodes] == ["n"]
        assert follow("default").nodes == ()
        with pytest.raises(UndeterminedError, match="nobody may not list"):
            follow("nobody")
        eventually(lambda: not house.viewers._feeds, "those who have left are forgotten")
        for _ in range(MOST_VIEWERS + 1):
            house.clock.advance(60)
            follow("admin")
            eventually(lambda: not house.viewers._feeds, "they have left")
    finally:
        house.viewers.stop()
        house.server.stop()
