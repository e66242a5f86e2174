import json
from datetime import timedelta

import pytest
from msgspec.structs import replace

from provisioner.ec2.market import discovered_capacity
from provisioner.ec2.market.discovered_capacity import CONFIG_KEY, MemoryTable, Seen
from tests.support.clock import NOON

SEEN = Seen("m5.large", "ami-1", "AL2023", "2026-10-01T00:00:00.000Z", 7_900_000_000, int(NOON.timestamp()))


def table_of(*seen: Seen) -> MemoryTable:
    table = MemoryTable()
    for one in seen:
        table.learn(one)
    return table


def test_learned_by_type_and_image() -> None:
    table = table_of(SEEN)
    assert table.lookup("m5.large", "ami-1", "AL2023") == 7_900_000_000
    assert table.lookup("m5.xlarge", "ami-1", "AL2023") is None


def test_a_new_image_takes_over_from_the_newest_of_its_family() -> None:
    newer = replace(
        SEEN,
        image="ami-2",
        memory=7_800_000_000,
        image_created="2026-11-01T00:00:00.000Z",
        at=int((NOON - timedelta(days=1)).timestamp()),
    )
    other = replace(SEEN, image="ami-3", memory=1, family="Bottlerocket", image_created="2026-12-01T00:00:00.000Z")
    table = table_of(SEEN, newer, other)
    assert table.lookup("m5.large", "ami-9", "AL2023") == 7_800_000_000
    assert table.lookup("m5.large", "ami-9", "Windows2022") is None


def test_images_without_a_date_go_by_when_they_were_seen() -> None:
    old = replace(SEEN, image_created="", at=int((NOON - timedelta(days=5)).timestamp()), memory=1)
    new = replace(SEEN, image="ami-2", image_created="", memory=2)
    assert table_of(new, old).lookup("m5.large", "ami-9", "AL2023") == 2


def test_the_smallest_that_was_seen_stands() -> None:
    table = table_of(SEEN)
    version = table.version
    assert not table.learn(replace(SEEN, memory=SEEN.memory + 1))
    assert table.version == version
    assert table.learn(replace(SEEN, memory=SEEN.memory - 1))
    assert table.version != version
    assert table.lookup("m5.large", "ami-1", "AL2023") == SEEN.memory - 1


@pytest.mark.parametrize("bad", [replace(SEEN, memory=0), replace(SEEN, instance_type=""), replace(SEEN, image="")])
def test_nonsense_is_not_learned(bad: Seen) -> None:
    assert not MemoryTable().learn(bad)


def test_a_node_that_keeps_coming_back_keeps_its_figure() -> None:
    table = table_of(SEEN, replace(SEEN, at=int((NOON + timedelta(days=50)).timestamp())))
    (kept,) = table.to_config(NOON + timedelta(days=70))
    assert MemoryTable().restore([kept], NOON + timedelta(days=70)) == 0
    assert "ami-1" in kept[CONFIG_KEY]


def test_after_sixty_days_a_figure_is_gone() -> None:
    (kept,) = table_of(SEEN).to_config(NOON + timedelta(days=61))
    assert json.loads(kept[CONFIG_KEY])["rows"] == []
    again = MemoryTable()
    assert again.restore(table_of(SEEN).to_config(NOON), NOON + timedelta(days=61)) == 0
    assert len(again) == 0


def test_it_survives_a_restart() -> None:
    table = table_of(SEEN, replace(SEEN, instance_type="c5.large", memory=5), replace(SEEN, image="ami-2", memory=6))
    maps = table.to_config(NOON)
    again = MemoryTable()
    assert again.restore(maps, NOON) == 0
    assert again.to_config(NOON) == maps
    assert again.lookup("c5.large", "ami-1", "AL2023") == 5


def test_config_maps_of_at_most_900_kib() -> None:
    table = MemoryTable()
    for kind in range(1400):
        for image in range(20):
            table.learn(replace(SEEN, instance_type=f"family-{kind:04}.metal-48xl", image=f"ami-{image:017}"))
    maps = table.to_config(NOON)
    assert len(maps) > 1
    assert all(len(data[CONFIG_KEY].encode()) <= 900 * 1024 for data in maps)
    again = MemoryTable()
    assert again.restore(maps, NOON) == 0
    assert len(again) == len(table) == 28_000


def test_a_full_table_gives_up_what_was_not_seen_for_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovered_capacity, "MAX_ROWS", 32)
    table = MemoryTable()
    for number in range(40):
        table.learn(
            replace(SEEN, instance_type=f"t{number}.large", at=int((NOON + timedelta(seconds=number)).timestamp()))
        )
    assert len(table) <= 32
    assert table.lookup("t0.large", "ami-1", "AL2023") is None
    assert table.lookup("t39.large", "ami-1", "AL2023") == SEEN.memory


EPOCH = int(NOON.timestamp())
ROW = ["m5.large", "ami-1", "AL2023", "", 7, EPOCH]
BAD = {
    "another ConfigMap": ({"x": "y"}, 0, 0),
    "no JSON": ({CONFIG_KEY: "{"}, 1, 0),
    "another version": ({CONFIG_KEY: json.dumps({"v": 9, "rows": [ROW]})}, 1, 0),
    "one bad row beside a good one": ({CONFIG_KEY: json.dumps({"v": 1, "rows": [ROW, ["x"], 5]})}, 2, 1),
    "no memory": ({CONFIG_KEY: json.dumps({"v": 1, "rows": [[*ROW[:4], 0, EPOCH]]})}, 1, 0),
}


@pytest.mark.parametrize(("data", "bad", "rows"), BAD.values(), ids=BAD)
def test_what_cannot_be_read_costs_itself_only(data: dict[str, str], bad: int, rows: int) -> None:
    table = MemoryTable()
    assert table.restore([data], NOON) == bad
    assert len(table) == rows


def test_a_clock_that_was_ahead_does_not_keep_a_figure_for_ever() -> None:
    table = MemoryTable()
    table.restore([{CONFIG_KEY: json.dumps({"v": 1, "rows": [[*ROW[:5], EPOCH + 10**9]]})}], NOON)
    (kept,) = table.to_config(NOON + timedelta(days=61))
    assert json.loads(kept[CONFIG_KEY])["rows"] == []
