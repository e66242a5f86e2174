"""The launch-set annotation."""

import pytest

from provisioner.apis import names
from provisioner.apis.launch_sets import (
    MAX_BYTES,
    MOST_SETS,
    LaunchSet,
    LaunchSetError,
    decode_sets,
    encode_sets,
    sets_of,
)


def one(number: int, *, group: str = "train/a", nodes: int = 4) -> LaunchSet:
    return LaunchSet(id=f"s{number:04}", group=group, nodes=nodes)


def test_what_is_written_is_read_whatever_the_order() -> None:
    sets = (one(1), one(2, group="train/b", nodes=1))

    text = encode_sets(reversed(sets))

    assert text == encode_sets(sets)
    assert decode_sets(text) == sets
    assert sets_of({names.LAUNCH_SET: text}) == sets


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "not launch sets"),
        ('{"v":2,"sets":[]}', "version 2"),
        ('{"v":1,"sets":[{"id":"A","group":"n/g","nodes":1}]}', "sets[0].id"),
        ('{"v":1,"sets":[{"id":"a","group":"n/g","nodes":0}]}', "sets[0].nodes"),
        ('{"v":1,"sets":[{"id":"a","group":"n/g","nodes":1},{"id":"a","group":"n/g","nodes":1}]}', "twice"),
        (" " * (MAX_BYTES + 1), "bytes"),
        (
            '{"v":1,"sets":['
            + ",".join(f'{{"id":"{n}","group":"n/g","nodes":1}}' for n in range(MOST_SETS + 1))
            + "]}",
            "257 launch sets",
        ),
    ],
)
def test_other_texts_are_refused_with_what_is_wrong_and_name_no_set(text: str, says: str) -> None:
    with pytest.raises(LaunchSetError) as caught:
        decode_sets(text)

    assert says in str(caught.value)
    assert sets_of({names.LAUNCH_SET: text}) == ()
    assert sets_of({}) == ()
