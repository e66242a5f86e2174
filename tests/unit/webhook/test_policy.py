"""The admission policy as a document; what it does to pods: tests/integration/test_admission_policy.py."""

from provisioner.apis import names, stamping
from webhook import policy, registration

LEFT_TO_THE_WEBHOOK = {
    stamping.SCHEDULER_STAMP,
    stamping.TOLERATIONS_STAMP,
    stamping.LEGACY_STAMP,
    stamping.IMAGE_STAMP,
    stamping.SHARE_STAMP,
}


def test_every_stamp_is_made_by_the_policy_or_left_to_the_webhook_on_purpose() -> None:
    (entries,) = (one["expression"] for one in policy.policy()["spec"]["variables"] if one["name"] == "entries")
    made = {stamp for stamp in stamping.STAMPS if f"'{stamp}=" in entries}
    assert made | LEFT_TO_THE_WEBHOOK == stamping.STAMPS
    assert not made & LEFT_TO_THE_WEBHOOK


def test_the_policy_fails_open_and_matches_the_pods_of_the_webhook() -> None:
    spec = policy.policy()["spec"]
    (hook,) = registration.webhook_configuration({}, names.OWN_NAMESPACE)["webhooks"]
    assert spec["failurePolicy"] == hook["failurePolicy"] == "Ignore"
    assert spec["matchConstraints"]["resourceRules"] == hook["rules"]
    assert spec["matchConstraints"]["namespaceSelector"] == hook["namespaceSelector"]
    assert hook["matchConditions"] == spec["matchConditions"][: len(hook["matchConditions"])]


def test_no_list_of_objects_is_in_a_patch() -> None:
    """Kube-apiserver 1.36 panics on them: admission then fails for the pod, whatever the failure policy."""
    (mutation,) = policy.policy()["spec"]["mutations"]
    assert "Object." not in mutation["jsonPatch"]["expression"]


def test_without_the_configmap_nothing_is_stamped_and_pods_are_admitted() -> None:
    assert policy.binding()["spec"]["paramRef"]["parameterNotFoundAction"] == "Allow"
