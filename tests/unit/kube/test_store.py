from provisioner.kube.store import Store


def test_a_store_holds_the_last_object_of_each_key_in_the_order_in_which_they_came() -> None:
    store: Store[str] = Store()
    assert store.put("a", "first") is None
    assert store.put("b", "other") is None
    assert store.put("a", "second") == "first"
    assert (store.keys(), store.list(), store.get("a"), "a" in store, len(store)) == (
        ["a", "b"],
        ["second", "other"],
        "second",
        True,
        2,
    )


def test_a_removed_object_is_nowhere() -> None:
    store: Store[str] = Store()
    store.put("a", "first")
    assert store.remove("a") == "first"
    assert store.remove("a") is None
    assert (len(store), "a" in store, store.get("a"), store.list(), store.keys()) == (0, False, None, [], [])
