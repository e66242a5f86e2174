"""Whose entries a cache that owners share forgets."""

import random
from collections import Counter

from webhook.images.fair_cache import FairCache

MOST = 2048


def cache(most: int = MOST) -> FairCache[str, str]:
    """Entries are their owners' names."""
    return FairCache(lambda: most, lambda entry: entry)


def used(cache: FairCache[str, str], key: str, owner: str) -> bool:
    """Whether a key that is needed was there; it is there afterwards."""
    if cache.get(key) is not None:
        cache.use(key)
        return True
    cache.put(key, owner)
    return False


def test_the_entries_of_an_owner_that_uses_many_stay_while_others_come_and_go() -> None:
    """A hundred namespaces bring forty new images a round; the one with the most images had lost most of them."""
    kept, hits, number = cache(), 0, 0
    for _ in range(200):
        for name in range(300):
            hits += used(kept, f"prod-{name}", "prod")
        for _ in range(40):
            number += 1
            used(kept, f"new-{number}", f"team-{number % 100}")
    assert hits == 199 * 300


def test_one_owner_that_floods_pushes_out_its_own() -> None:
    kept = cache()
    for number in range(300):
        kept.put(f"shop-{number}", "shop")
    for number in range(20_000):
        kept.put(f"flood-{number}", "flood")
    assert sum(kept.get(f"shop-{number}") is not None for number in range(300)) == 300
    assert len(kept) == MOST
    assert kept.get("flood-19999") is not None


def test_an_owner_below_a_quarter_pushes_out_what_was_used_longest_ago() -> None:
    kept = cache(8)
    for number in range(8):
        kept.put(f"old-{number}", "" if number % 2 else "shop")
    kept.use("old-0")
    kept.put("new-1", "team")
    kept.put("new-2", "team")
    assert [kept.get(f"old-{number}") for number in range(4)] == ["shop", None, None, ""]


def test_what_is_counted_of_owners_is_what_is_there() -> None:
    chance, kept = random.Random(7), cache(20)
    for _ in range(5_000):
        key, owner = f"k{chance.randrange(60)}", chance.choice(["", "a", "b", "c"])
        chance.choice([lambda k=key, o=owner: kept.put(k, o), lambda k=key: kept.drop(k)])()  # type: ignore[misc]
        assert len(kept) <= 20
        counts = Counter(owner for owner in kept._all.values() if owner)
        assert {owner: len(keys) for owner, keys in kept._own.items()} == dict(counts)
