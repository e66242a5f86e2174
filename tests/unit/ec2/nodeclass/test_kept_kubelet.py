"""The kubelet of v1beta1 instead of the class's."""

from msgspec import structs

from provisioner.apis import names
from provisioner.apis.ec2 import EC2NodeClass, EC2NodeClassSpec
from provisioner.ec2.nodeclass.kept_kubelet import with_kept_kubelet

CLASS = EC2NodeClass(spec=EC2NodeClassSpec(kubelet={"maxPods": 20, "podsPerCore": 1}))


def kept(text: str) -> EC2NodeClass:
    return with_kept_kubelet(CLASS, {names.KUBELET_ANNOTATION: text})


def test_what_was_kept_wins_and_the_class_is_not_changed() -> None:
    assert kept('{"maxPods":7}').kubelet == {"maxPods": 7}
    assert CLASS.kubelet == {"maxPods": 20, "podsPerCore": 1}
    assert structs.replace(kept('{"maxPods":7}'), spec=CLASS.spec) == CLASS


def test_without_it_or_where_it_cannot_be_read_the_class_counts() -> None:
    assert with_kept_kubelet(CLASS, {}) is CLASS
    assert kept("{") is CLASS
    assert kept("[]") is CLASS


def test_fields_that_v1beta1_did_not_have_are_left_out() -> None:
    assert kept('{"maxPods":7,"registerWithTaints":[]}').kubelet == {"maxPods": 7}
