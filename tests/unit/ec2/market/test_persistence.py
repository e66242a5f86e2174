from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from provisioner.apis import names
from provisioner.apis.core import ConfigMap
from provisioner.ec2.cloud import tables_of
from provisioner.ec2.launch.templates import TemplateUses
from provisioner.ec2.market import discovered_capacity, persistence, unavailable_offerings
from provisioner.ec2.market.discovered_capacity import MemoryTable, Seen
from provisioner.ec2.market.persistence import Keeper, KeptTable
from provisioner.ec2.market.unavailable_offerings import OfferingKey, Shortages
from provisioner.kube.errors import ApiError, NotFound, ServerError
from provisioner.kube.resources import Resource
from tests.support.clock import NOON, FakeClock

OFFER = OfferingKey(names.CAPACITY_SPOT, "m5.large", "a")
SEEN = Seen("m5.large", "ami-1", "AL2023", "", 7 * 2**30, int(NOON.timestamp()))


class Maps:
    """ConfigMaps of one namespace; `failing` answers every request with an error."""

    def __init__(self) -> None:
        self.data: dict[str, Mapping[str, str]] = {}
        self.failing: ApiError | None = None
        self.writes: list[str] = []

    def get(self, resource: Resource[ConfigMap], name: str, namespace: str, /) -> ConfigMap:
        assert (resource.kind, namespace) == ("ConfigMap", "dovetail-system")
        if self.failing is not None:
            raise self.failing
        if name not in self.data:
            raise NotFound(404, "NotFound", name)
        return ConfigMap(data=dict(self.data[name]))

    def apply(self, resource: Resource[ConfigMap], name: str, body: Any, manager: str, namespace: str, /) -> None:
        assert (resource.kind, manager, namespace) == ("ConfigMap", "dovetail", "dovetail-system")
        if self.failing is not None:
            raise self.failing
        self.writes.append(name)
        self.data[name] = body["data"]


class Process:
    """One process' tables and its keeper."""

    def __init__(self, maps: Maps) -> None:
        self.shortages, self.memory, self.uses = Shortages(), MemoryTable(), TemplateUses()
        tables = tables_of(self.shortages, self.memory, self.uses)
        self.keeper = Keeper(maps, "dovetail-system", tables, FakeClock())


def test_the_next_process_knows_what_this_one_knew() -> None:
    maps = Maps()
    before = Process(maps)
    before.keeper.restore()
    before.shortages.failed(OFFER, NOON)
    before.memory.learn(SEEN)
    before.uses.used("one", NOON)
    before.keeper.save()
    after = Process(maps)
    after.keeper.restore()
    assert not after.shortages.standing(OFFER, NOON).available
    assert after.memory.lookup("m5.large", "ami-1", "AL2023") == SEEN.memory
    assert len(after.uses) == 1


def test_what_did_not_change_is_not_written() -> None:
    maps = Maps()
    process = Process(maps)
    process.memory.learn(SEEN)
    process.keeper.save()
    first = list(maps.writes)
    process.keeper.save()
    assert maps.writes == first
    process.shortages.failed(OFFER, NOON)
    process.keeper.save()
    assert maps.writes == [*first, unavailable_offerings.CONFIG_MAP]
    Process(maps).keeper.save()
    assert maps.writes == [*first, unavailable_offerings.CONFIG_MAP], "nor by the next process"


def test_a_table_that_cannot_be_read_is_not_overwritten() -> None:
    maps = Maps()
    before = Process(maps)
    before.memory.learn(SEEN)
    before.keeper.save()
    kept = maps.data[f"{discovered_capacity.CONFIG_MAP_PREFIX}0"]
    after = Process(maps)
    maps.failing = ServerError(500, "InternalError", "down")
    after.keeper.restore()
    after.keeper.save()
    maps.failing = None
    assert maps.data[f"{discovered_capacity.CONFIG_MAP_PREFIX}0"] == kept
    after.keeper.save()
    assert after.memory.lookup("m5.large", "ami-1", "AL2023") == SEEN.memory
    assert maps.data[f"{discovered_capacity.CONFIG_MAP_PREFIX}0"] == kept


def test_a_write_that_failed_is_tried_again() -> None:
    maps = Maps()
    process = Process(maps)
    process.keeper.restore()
    process.shortages.failed(OFFER, NOON)
    maps.failing = ServerError(500, "InternalError", "down")
    process.keeper.save()
    maps.failing = None
    process.keeper.save()
    assert unavailable_offerings.CONFIG_MAP in maps.writes


def test_a_table_that_shrank_leaves_nothing_behind() -> None:
    maps = Maps()
    parts = [{"x": "1"}, {"x": "2"}, {"x": "3"}]
    seen: list[int] = []

    def read(found: Sequence[Mapping[str, str]], _: datetime) -> int:
        seen.append(len(found))
        return 0

    table = KeptTable("t-", True, lambda _: list(parts), read)
    Keeper(maps, "dovetail-system", [table], FakeClock()).save()
    del parts[1:]
    Keeper(maps, "dovetail-system", [table], FakeClock()).save()
    assert maps.data == {"t-0": {"x": "1"}, "t-1": {}, "t-2": {}}
    assert seen == [0, 3]


def test_no_table_fills_more_maps_than_the_permissions_name() -> None:
    maps = Maps()
    table = KeptTable("t-", True, lambda _: [{"x": str(index)} for index in range(20)], lambda *_: 0)
    Keeper(maps, "dovetail-system", [table], FakeClock()).save()
    assert len(maps.data) == persistence.MAX_PARTS


def test_the_end_keeps_what_changed_last() -> None:
    maps = Maps()
    process = Process(maps)
    process.keeper.begin()
    process.keeper.poller.start()
    process.shortages.failed(OFFER, NOON)
    process.keeper.poller.stop()
    process.keeper.stop()
    assert unavailable_offerings.CONFIG_MAP in maps.writes
