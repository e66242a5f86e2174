"""Existing nodes: which of them labels and names match, and at what cost."""

from dataclasses import replace
from typing import Any

from provisioner.apis import names
from provisioner.scheduling.capacity.nodes import Ground
from provisioner.scheduling.constraints.filters import read_term
from tests.support.problems import node, term


class Looked(dict[str, str]):
    """Labels that count how often they are asked."""

    looks = 0

    def get(self, key: str, default: Any = None) -> Any:
        Looked.looks += 1
        return super().get(key, default)


def test_labels_that_no_node_has_are_not_looked_for_on_each_node() -> None:
    """Found by an examination: pods with thousands of such expressions kept all others from being planned."""
    ground = Ground([replace(node(f"n{number}"), labels=Looked(team="a")) for number in range(200)])
    absent = read_term(term(*((f"key-{number}", "DoesNotExist", ()) for number in range(500))), "")
    assert not ground.matching((read_term(term(("team", "In", ["b"])), ""),))
    Looked.looks = 0
    assert ground.matching((absent,)) == ground.everything
    assert not Looked.looks


def test_terms_match_as_one_node_after_another_does() -> None:
    """By label, hostname (also where the node is to come), and name."""
    bins = [
        node("named"),
        replace(node("unlabelled", labels={"team": "a"}), labels={"team": "a"}),
        replace(node("to-come"), node_name="", labels={"team": "b"}),
    ]
    terms = [
        term((names.HOSTNAME_LABEL, "In", ["named"])),
        term((names.HOSTNAME_LABEL, "DoesNotExist", ())),
        term((names.HOSTNAME_LABEL, "NotIn", ["named"]), ("team", "Exists", ())),
        term(("team", "In", ["a"]), (names.OS_LABEL, "DoesNotExist", ())),
        term(("team", "DoesNotExist", ())),
    ]
    for one in terms:
        read = read_term(one, "")
        each = sum(1 << i for i, bin_ in enumerate(bins) if read.matches(bin_.labels, bin_.node_name))
        assert Ground(bins).matching((read,)) == each, one
        assert Ground(bins, Ground(bins[:1])).matching((read,)) == each, one
