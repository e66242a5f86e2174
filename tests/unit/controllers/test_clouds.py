from pathlib import Path

import pytest

from provisioner.cloudprovider.kwok import catalogue
from provisioner.cloudprovider.types import InstanceType
from provisioner.controllers.clouds import TypesByPool, kwok_catalogue
from provisioner.options import Options
from tests.support.cluster import pool

TYPES = catalogue.generated().types


def test_pools_with_the_same_types_share_one_table() -> None:
    types = TypesByPool(lambda name: pool(name), lambda _: TYPES)
    assert types("a")[TYPES[0].name] is TYPES[0]
    assert types("a") is types("b")


def test_a_pool_with_other_types_has_its_own_table() -> None:
    by_pool = {"a": TYPES, "b": TYPES[:1]}
    types = TypesByPool(lambda name: pool(name), lambda found: by_pool[found.name])
    assert (len(types("a")), len(types("b"))) == (len(TYPES), 1)
    assert types("a") is types("a")


def test_types_that_changed_are_taken_over() -> None:
    now: list[tuple[InstanceType, ...]] = [TYPES]
    types = TypesByPool(lambda name: pool(name), lambda _: now[0])
    before = types("a")
    now[0] = TYPES[:2]
    assert (len(before), len(types("a"))) == (len(TYPES), 2)


def test_a_pool_that_is_gone_has_none() -> None:
    there = {"a": pool("a")}
    types = TypesByPool(there.get, lambda _: TYPES)
    assert types("a")
    there.clear()
    assert types("a") == {}


def test_the_catalogue_is_the_built_in_one_unless_a_file_is_named(tmp_path: Path) -> None:
    assert kwok_catalogue(Options()) is None
    with pytest.raises(catalogue.CatalogueError):
        kwok_catalogue(Options(instance_types_file_path=str(tmp_path / "none.json")))
