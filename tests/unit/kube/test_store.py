from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.kube.store import Index, Store


@dataclass(frozen=True)
class Item:
    name: str
    node: str = ""
    tags: tuple[str, ...] = ()


def node_of(item: Item) -> list[str]:
    return [item.node] if item.node else []


def tags_of(item: Item) -> tuple[str, ...]:
    return item.tags


INDEXES: dict[str, Index[Item]] = {"node": node_of, "tag": tags_of}


def names(items: list[Item]) -> list[str]:
    return sorted(item.name for item in items)


def test_an_object_is_found_by_key_and_by_every_value_of_every_index() -> None:
    store: Store[Item] = Store(INDEXES)
    store.put("a", Item("a", "n1", ("x", "y")))
    store.put("b", Item("b", "n1", ("y",)))
    assert store.get("a") == Item("a", "n1", ("x", "y"))
    assert names(store.by_index("node", "n1")) == ["a", "b"]
    assert names(store.by_index("tag", "x")) == ["a"]
    assert names(store.by_index("tag", "y")) == ["a", "b"]


def test_a_replaced_object_leaves_the_values_that_it_lost() -> None:
    store: Store[Item] = Store(INDEXES)
    store.put("a", Item("a", "n1", ("x", "y")))
    assert store.put("a", Item("a", "n2", ("y", "z"))) == Item("a", "n1", ("x", "y"))
    assert store.by_index("node", "n1") == []
    assert store.by_index("tag", "x") == []
    assert names(store.by_index("tag", "y")) == ["a"]
    assert store.by_index("tag", "y")[0].node == "n2"
    assert sorted(store.index_values("tag")) == ["y", "z"]


def test_a_removed_object_is_nowhere() -> None:
    store: Store[Item] = Store(INDEXES)
    store.put("a", Item("a", "n1", ("x",)))
    assert store.remove("a") == Item("a", "n1", ("x",))
    assert store.remove("a") is None
    assert (len(store), "a" in store, store.get("a"), store.index_values("node")) == (0, False, None, [])


def test_an_index_that_does_not_exist_is_named() -> None:
    store: Store[Item] = Store(INDEXES)
    with pytest.raises(KeyError, match="no index 'nope'; there are: node, tag"):
        store.by_index("nope", "x")


items = st.builds(
    Item,
    name=st.sampled_from("abcd"),
    node=st.sampled_from(["", "n1", "n2"]),
    tags=st.lists(st.sampled_from("xyz")).map(tuple),
)


@given(steps=st.lists(st.tuples(st.booleans(), items), max_size=40))
def test_indexes_always_equal_a_search_through_all_objects(steps: list[tuple[bool, Item]]) -> None:
    store: Store[Item] = Store(INDEXES)
    for keep, item in steps:
        if keep:
            store.put(item.name, item)
        else:
            store.remove(item.name)
    for index, of in INDEXES.items():
        for value in ("n1", "n2", "x", "y", "z"):
            assert names(store.by_index(index, value)) == names([item for item in store.list() if value in of(item)])
        assert sorted(store.index_values(index)) == sorted({value for item in store.list() for value in of(item)})
