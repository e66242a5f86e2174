"""The NodeClaim that is written for a planned one."""

from typing import Any

import msgspec
import pytest
from msgspec import structs

from provisioner.apis import hash as hash_module
from provisioner.apis import names
from provisioner.apis.hash import nodepool_hash
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.plan import MAX_BYTES, decode_plan, fitting_text
from provisioner.apis.pods import Pod
from provisioner.apis.structural import record
from provisioner.scheduling.node_claims import plan_of, planned_claim, static_claim, template_requirements
from provisioner.scheduling.result import PlannedClaim
from provisioner.values.requirement import Requirement, Requirements
from provisioner.values.resources import Resources
from tests.support.cluster import pod, pool

TAINT = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}


def planned(of: NodePool, *pods: Pod, labels: dict[str, str] | None = None) -> PlannedClaim:
    """A claim of one c-4x-amd64-linux in test-zone-a, spot."""
    return PlannedClaim(
        pool=of.name,
        template=of,
        requirements=Requirements.of([Requirement.of(names.ARCH_LABEL, "In", ["amd64"])]),
        labels=labels or {},
        requests=Resources.parse({"cpu": "1500m", "memory": "1Gi", "pods": "2"}),
        pods=pods,
        instance_types=("c-4x-amd64-linux",),
        planned_type="c-4x-amd64-linux",
        planned_zone="test-zone-a",
        planned_capacity_type="spot",
        usd_per_hour=0.1,
        capacity=Resources.parse({"cpu": "4"}),
        allocatable=Resources.parse({"cpu": "4"}),
        charge=Resources.of({}),
    )


def body_of(of: NodePool, *pods: Pod, labels: dict[str, str] | None = None) -> dict[str, Any]:
    """The body as it is sent."""
    body = planned_claim(planned(of, *pods, labels=labels), "general-abcde").body
    sent: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(body))
    return sent


def test_the_claim_is_named_owned_and_protected_from_the_start() -> None:
    metadata = body_of(pool())["metadata"]
    assert metadata["name"] == "general-abcde"
    assert metadata["generateName"] == "general-"
    assert metadata["finalizers"] == [names.TERMINATION_FINALIZER]
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "name": "general",
            "uid": "uid-general",
            "blockOwnerDeletion": True,
        }
    ]


def test_labels_are_the_templates_and_the_plans_with_pool_and_class_last() -> None:
    template = {"metadata": {"labels": {"team": "a", names.NODEPOOL_LABEL: "forged"}}}
    of = with_template(template)
    assert body_of(of, labels={"tier": "gold"})["metadata"]["labels"] == {
        "team": "a",
        "tier": "gold",
        names.NODEPOOL_LABEL: "general",
        "karpenter.kwok.sh/kwoknodeclass": "default",
    }


def test_annotations_are_the_templates_with_hash_and_plan() -> None:
    of = with_template({"metadata": {"annotations": {"team": "a"}}})
    annotations = body_of(of, pod("one"))["metadata"]["annotations"]
    plan = annotations.pop(names.PLAN_ANNOTATION)
    assert annotations == {
        "team": "a",
        names.NODEPOOL_HASH: nodepool_hash(of.spec.template),
        names.NODEPOOL_HASH_VERSION: "v3",
        names.MIN_VALUES_RELAXED: "false",
        names.PLANNED_OFFERING_ANNOTATION: "c-4x-amd64-linux/test-zone-a/spot",
    }
    assert decode_plan(plan) == plan_of((pod("one"),))


def test_a_claim_says_that_its_min_values_were_relaxed() -> None:
    of = pool()
    relaxed = structs.replace(planned(of), min_values_relaxed=True)
    new = planned_claim(relaxed, "general-abcde")
    assert new.min_values_relaxed
    assert new.body["metadata"]["annotations"][names.MIN_VALUES_RELAXED] == "true"


def test_min_values_are_written_with_their_requirement() -> None:
    of = pool()
    one = Requirement.of(names.INSTANCE_TYPE_LABEL, "In", ["a", "b"], min_values=2)
    new = planned_claim(structs.replace(planned(of), requirements=Requirements.of([one])), "general-abcde")
    (written,) = new.claim.spec.requirements
    assert (written.key, sorted(written.values), written.min_values) == (names.INSTANCE_TYPE_LABEL, ["a", "b"], 2)


def test_requests_and_requirements_are_the_plans() -> None:
    spec = body_of(pool())["spec"]
    assert spec["resources"] == {"requests": {"cpu": "1500m", "memory": "1Gi", "pods": "2"}}
    assert spec["requirements"] == [{"key": names.ARCH_LABEL, "operator": "In", "values": ["amd64"]}]
    assert spec["nodeClassRef"] == {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}


ABSENT = object()


@pytest.mark.parametrize("field", ["taints", "startupTaints"])
@pytest.mark.parametrize("given", [ABSENT, [], [TAINT]], ids=["absent", "empty", "one"])
def test_what_the_template_leaves_out_is_left_out(field: str, given: object) -> None:
    of = pool(template={} if given is ABSENT else {field: given})
    assert body_of(of)["spec"].get(field, ABSENT) == given


@pytest.mark.parametrize(
    ("field", "given"), [("terminationGracePeriod", "30s"), ("expireAfter", "Never"), ("expireAfter", "1h30m")]
)
def test_durations_keep_their_text(field: str, given: str) -> None:
    assert body_of(pool(template={field: given}))["spec"][field] == given
    assert field not in body_of(pool())["spec"]


def test_the_body_can_be_sent_and_reads_back_as_a_claim_without_uid() -> None:
    of = pool(template={"taints": [TAINT], "expireAfter": "Never"})
    new = planned_claim(planned(of, pod("one")), "general-abcde")
    claim = new.claim
    assert msgspec.convert(msgspec.json.decode(msgspec.json.encode(new.body)), NodeClaim, strict=False) == claim
    assert (new.name, new.pool, new.plan) == ("general-abcde", "general", fitting_text(plan_of((pod("one"),))))
    assert (claim.name, claim.pool, claim.metadata.uid) == ("general-abcde", "general", "")
    assert (claim.spec.expire_after, [taint.key for taint in claim.spec.taints]) == ("Never", ["dedicated"])


def test_whoever_makes_a_claim_may_annotate_it_and_wins_over_the_template() -> None:
    of = with_template({"metadata": {"annotations": {"team": "a", "command": "template"}}})
    new = planned_claim(planned(of, pod("one")), "general-abcde", {"command": "c-1"})
    annotations = new.body["metadata"]["annotations"]
    assert (annotations["team"], annotations["command"]) == ("a", "c-1")
    assert annotations[names.PLAN_ANNOTATION] == new.plan


def test_the_hash_of_a_template_is_computed_once_for_all_its_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[str] = []

    def counted(kind: str, fields: Any) -> int:
        computed.append(kind)
        return record(kind, fields)

    monkeypatch.setattr(hash_module, "record", counted)
    first, second = pool(), with_template({"metadata": {"labels": {"team": "a"}}})
    made = [planned_claim(planned(of), name) for of, name in ((first, "a"), (first, "b"), (second, "c"), (first, "d"))]
    hashes = [one.claim.metadata.annotations[names.NODEPOOL_HASH] for one in (*made, static_claim(first, "e"))]
    assert computed.count("NodeClaimTemplate") == 2
    assert hashes == [nodepool_hash(of.spec.template) for of in (first, first, second, first, first)]
    assert len(set(hashes)) == 2


def test_the_hash_of_a_template_is_kept_no_longer_than_the_template() -> None:
    """Every status update of a NodePool is a new object, and its reconcile asks for the hash: a template may have hundreds of kilobytes."""
    of = pool()
    nodepool_hash(of.spec.template)
    before = len(hash_module._known)
    for _ in range(20):
        again = with_template({"metadata": {"labels": {"team": "a"}}})
        assert nodepool_hash(again.spec.template)
        del again
    assert len(hash_module._known) == before


def test_a_claim_without_its_node_pool_is_a_mistake() -> None:
    with pytest.raises(TypeError, match="NodePool"):
        planned_claim(structs.replace(planned(pool()), template=None), "general-abcde")


def test_a_static_claim_says_what_the_template_says_and_nothing_of_pods() -> None:
    arch = {"key": names.ARCH_LABEL, "operator": "In", "values": ["arm64"]}
    of = with_template({"metadata": {"labels": {"team": "a"}}}, requirements=(arch,))
    new = static_claim(of, "general-abcde")
    labels = {"team": "a", names.NODEPOOL_LABEL: "general", "karpenter.kwok.sh/kwoknodeclass": "default"}
    assert new.body["metadata"]["labels"] == labels
    assert new.body["metadata"]["annotations"] == {
        names.NODEPOOL_HASH: nodepool_hash(of.spec.template),
        names.NODEPOOL_HASH_VERSION: "v3",
        names.MIN_VALUES_RELAXED: "false",
    }
    written = {one.key: one.values for one in new.claim.spec.requirements}
    assert written == {key: (value,) for key, value in labels.items()} | {names.ARCH_LABEL: ("arm64",)}
    assert (new.pods, new.plan, new.body["spec"]["resources"]) == ((), "", {"requests": {}})


def test_equal_pods_of_one_owner_are_one_entry_of_the_plan() -> None:
    plan = plan_of((pod("b"), pod("a"), pod("c", owner="other"), pod("d", cpu="2"), pod("e", owner="")))
    assert sorted((entry.owner, entry.count, entry.uids) for entry in plan.pods) == [
        ("", 1, ("e",)),
        ("other", 1, ("c",)),
        ("rs", 1, ("d",)),
        ("rs", 2, ("a", "b")),
    ]


def test_the_plan_does_not_depend_on_the_order_of_the_pods() -> None:
    pods = tuple(pod(name, owner=owner) for name in "dbca" for owner in ("y", "x"))
    assert fitting_text(plan_of(pods)) == fitting_text(plan_of(pods[::-1]))


def test_a_plan_too_large_for_an_annotation_leaves_its_uids_out() -> None:
    pods = tuple(pod(f"p{number}", uid=f"{number:036}") for number in range(2000))
    text = fitting_text(plan_of(pods))
    assert len(text) < MAX_BYTES
    (entry,) = decode_plan(text).pods
    assert (entry.count, entry.uids) == (2000, ())


def test_a_plan_of_too_many_owners_is_left_out() -> None:
    pods = tuple(pod(f"p{number}", owner=f"{number:036}") for number in range(2000))
    assert fitting_text(plan_of(pods)) == ""
    assert names.PLAN_ANNOTATION not in body_of(pool(), *pods)["metadata"]["annotations"]


def with_template(template: dict[str, Any], **spec: Any) -> NodePool:
    """The pool `general` with this metadata in its template."""
    body = msgspec.to_builtins(pool(**spec))
    body["spec"]["template"] |= template
    return msgspec.convert(body, NodePool, strict=False)


def former(**annotations: str) -> NodePool:
    """A NodePool that was made from another version."""
    one = pool()
    return structs.replace(one, metadata=structs.replace(one.metadata, annotations=dict(annotations)))


def test_nodes_of_a_former_provisioner_carry_its_name_and_claims_do_not_require_it() -> None:
    of = former(**{names.PROVISIONER_NAME: "novo"})
    requirements = template_requirements(of)
    assert requirements.requirement(names.PROVISIONER_NAME).has("novo")
    body = planned_claim(structs.replace(planned(of), requirements=requirements), "general-abcde").body
    assert body["metadata"]["labels"][names.PROVISIONER_NAME] == "novo"
    assert names.PROVISIONER_NAME not in {one["key"] for one in body["spec"]["requirements"]}
    assert names.PROVISIONER_NAME not in body_of(pool())["metadata"]["labels"]


def test_the_kubelet_of_v1beta1_goes_with_the_claim() -> None:
    of = former(**{names.KUBELET_ANNOTATION: '{"maxPods":7}'})
    assert body_of(of)["metadata"]["annotations"][names.KUBELET_ANNOTATION] == '{"maxPods":7}'
    assert names.KUBELET_ANNOTATION not in body_of(pool())["metadata"]["annotations"]
