"""Answers about several pods at once."""

from msgspec.structs import replace

from provisioner.why.pods import why_pod, why_pods
from tests.support.dumps import dumped, existing_node, wire_pod


def test_each_of_several_pods_is_answered_as_it_would_be_alone() -> None:
    pods = [wire_pod("fits"), wire_pod("new", "3"), wire_pod("big", "400"), wire_pod("gone", status__phase="Failed")]
    instant = dumped(*existing_node("n"), wire_pod("web", on="n"), *pods)
    found = [instant.pod("default", one["metadata"]["name"]) for one in pods]
    answers = why_pods(instant, [one for one in found if one is not None])
    assert [one.state for one in answers] == ["FitsExistingNode", "FitsNewNode", "Unschedulable", "Finished"]
    assert answers == tuple(
        replace(why_pod(instant, "default", one["metadata"]["name"]), node_pools=()) for one in pods
    )
