"""The kube-scheduler configuration: what Dovetail relies on is in it."""

from typing import Any

from provisioner.lab.devcluster.kubescheduler import scheduler_configuration


def configuration(**changes: Any) -> dict[str, Any]:
    return scheduler_configuration(**{"extender": "http://127.0.0.1:1", **changes})


def test_both_profiles_share_one_extender_that_may_fail_and_sees_every_node() -> None:
    document = configuration()
    assert [profile["schedulerName"] for profile in document["profiles"]] == [
        "default-scheduler",
        "dovetail-scheduler",
    ]
    assert document["percentageOfNodesToScore"] == 100
    assert document["extenders"] == [
        {
            "urlPrefix": "http://127.0.0.1:1",
            "filterVerb": "filter",
            "prioritizeVerb": "prioritize",
            "preemptVerb": "preempt",
            "weight": 2,
            "nodeCacheCapable": True,
            "ignorable": True,
            "httpTimeout": "1s",
        }
    ]


def test_it_elects_a_leader_with_the_lease_that_the_webhook_checks() -> None:
    assert configuration()["leaderElection"] == {
        "leaderElect": True,
        "resourceName": "kube-scheduler",
        "resourceNamespace": "kube-system",
    }


def test_without_an_extender_the_rest_stays_the_same() -> None:
    with_one, without = configuration(), configuration(extender="")
    del with_one["extenders"]
    assert without == with_one


def test_in_a_pod_there_is_no_kubeconfig() -> None:
    assert "kubeconfig" not in configuration()["clientConnection"]
    assert configuration(kubeconfig="/k")["clientConnection"]["kubeconfig"] == "/k"
