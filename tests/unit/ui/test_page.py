"""How long a page is as JSON, whatever is in it, and that the sums of what is left out are kept."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from provisioner.ui.page import (
    MOST_BYTES,
    NO_PODS,
    Page,
    PageClass,
    PageNode,
    PageSums,
    PageWaiting,
    PodsApart,
    encoded,
)

AMOUNTS = st.integers(0, 64_000)
CLASSES = st.lists(
    st.builds(
        PageClass, namespace=st.just("a"), kind=st.just("Job"), name=st.text(max_size=8), cpu=AMOUNTS, memory=AMOUNTS
    ),
    min_size=1,
    max_size=6,
)


@st.composite
def pages(draw: st.DrawFn) -> Page:
    classes = draw(CLASSES)
    row = st.tuples(st.integers(0, len(classes) - 1), st.integers(1, 9), st.text(max_size=30))
    node = st.builds(
        PageNode,
        name=st.text(max_size=40),
        state=st.just("ready"),
        pods=st.lists(row, max_size=4).map(tuple),
        planned=st.lists(row, max_size=2).map(tuple),
        hidden=st.sampled_from([NO_PODS, PodsApart(pods=2, cpu=5, memory=7)]),
    )
    waiting = st.builds(PageWaiting, of=st.integers(0, len(classes) - 1), pods=st.integers(1, 5))
    return Page(
        at=1,
        sums=PageSums(nodes=3),
        classes=tuple(classes),
        nodes=tuple(draw(st.lists(node, max_size=12))),
        waiting=tuple(draw(st.lists(waiting, max_size=3))),
    )


def counted(page: Page) -> list[tuple[int, int, int]]:
    """(pods, cpu, memory) of each node, whether they are told apart or not, and of those that are planned there."""

    def summed(rows: tuple[tuple[int | str, ...], ...], more: PodsApart) -> tuple[int, int, int]:
        each = [(page.classes[int(row[0])], int(row[1])) for row in rows]
        return (
            sum(count for _, count in each) + more.pods,
            sum(one.cpu * count for one, count in each) + more.cpu,
            sum(one.memory * count for one, count in each) + more.memory,
        )

    return [
        found for one in page.nodes for found in (summed(one.pods, one.rest), summed(one.planned, one.planned_hidden))
    ]


@given(pages(), st.integers(200, 4000))
def test_whatever_is_left_out_of_a_page_its_sums_stay(page: Page, most: int) -> None:
    data = encoded(page, most)
    found = msgspec.json.decode(data, type=Page)
    assert counted(found) == counted(page)
    assert found.sums == page.sums
    assert [found.classes[one.of] for one in found.waiting if found.classes[one.of].prefix == ""] == [
        page.classes[one.of] for one in page.waiting
    ]
    assert bool(found.missing) == (len(msgspec.json.encode(page)) > most)


def test_a_page_that_has_room_for_everything_is_sent_whole() -> None:
    page = Page(at=1, classes=(PageClass(namespace="a", kind="Job", name="b"),), nodes=(PageNode(state="ready"),) * 3)
    assert msgspec.json.decode(encoded(page, MOST_BYTES), type=Page) == page


def test_nodes_go_last_and_are_counted() -> None:
    page = Page(at=1, nodes=tuple(PageNode(name=f"n{one}" * 50, state="ready") for one in range(1000)))
    found = msgspec.json.decode(encoded(page, 60_000), type=Page)
    assert len(encoded(page, 60_000)) <= 60_000
    assert len(found.nodes) + found.left_out == 1000
    assert len(set(found.missing)) == len(found.missing) == 3
    assert found.nodes == page.nodes[: len(found.nodes)]
