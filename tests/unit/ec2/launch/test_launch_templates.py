"""Launch templates and the account's quota of them: which go, and that launches go on."""

import threading
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from provisioner.apis import ec2
from provisioner.ec2.launch import launch_templates, templates
from provisioner.ec2.launch.launch_templates import LaunchTemplates
from provisioner.ec2.launch.templates import LaunchTemplate, TemplateUses
from provisioner.ec2.nodeclass.discovery import DiscoveryError
from provisioner.support.metrics import REGISTRY
from tests.support.clock import FakeClock

QUOTA = 20
TAGS = {ec2.CLUSTER_NAME_TAG: "prod", ec2.NODECLASS_TAG: "default"}


@pytest.fixture(autouse=True)
def _small_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_templates, "QUOTA", QUOTA)


class Cloud:
    """EC2's launch templates, so many an account."""

    def __init__(self, limit: int = QUOTA) -> None:
        self.limit = limit
        self.there: dict[str, dict[str, str]] = {}
        self.denied = False
        self.listed = True
        self._lock = threading.Lock()

    def client(self, service: str, region: str = "") -> "Cloud":
        assert (service, region) == ("ec2", "")
        return self

    def create_launch_template(self, LaunchTemplateName: str, TagSpecifications: list[Any], **_: Any) -> None:  # noqa: N803
        with self._lock:
            if len(self.there) >= self.limit:
                raise failure("MaxTemplateLimitExceeded")
            self.there[LaunchTemplateName] = {one["Key"]: one["Value"] for one in TagSpecifications[0]["Tags"]}

    def delete_launch_template(self, LaunchTemplateName: str) -> None:  # noqa: N803
        if self.denied:
            raise failure("UnauthorizedOperation")
        with self._lock:
            del self.there[LaunchTemplateName]

    def describe_launch_templates(self, MaxResults: int, Filters: Any = ()) -> dict[str, Any]:  # noqa: N803
        with self._lock:
            rows = [
                {"LaunchTemplateName": name, "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
                for name, tags in self.there.items()
                if self.listed
            ]
        return {"LaunchTemplates": rows}


def failure(code: str) -> ClientError:
    return ClientError(
        {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": 400}}, "CreateLaunchTemplate"
    )


class Stage:
    """A cluster whose templates were used an hour after each other, the first one first."""

    def __init__(self, ours: int = 0, foreign: int = 0, keep: timedelta = templates.KEEP) -> None:
        self.cloud, self.clock = Cloud(), FakeClock()
        self.uses = TemplateUses(keep)
        self.templates = LaunchTemplates(self.cloud, self.uses, self.clock, "prod")
        for number in range(foreign):
            self.cloud.there[f"somebody-{number}"] = {}
        for number in range(ours):
            self.make(number)
            self.clock.advance(3600)

    def make(self, *numbers: int) -> None:
        self.templates.ensure(LaunchTemplate(f"dovetail.dev/{number:02d}", {}, TAGS) for number in numbers)

    def ours(self) -> list[int]:
        return sorted(int(name[-2:]) for name in self.cloud.there if name.startswith("dovetail.dev/"))


def test_a_template_stays_as_long_as_the_operator_says() -> None:
    stage = Stage(ours=6, keep=timedelta(hours=2))
    assert stage.templates.clean({"default"}) == 5
    assert stage.ours() == [5]


CLEANED = {
    "far from the quota nothing goes": (10, 0, []),
    "at seven tenths too": (14, 0, []),
    "near it the oldest go": (19, 0, [0, 1, 2]),
    "templates of others count": (5, 14, [0, 1, 2]),
    "and are never touched": (2, 18, [0, 1]),
}


@pytest.mark.parametrize(("ours", "foreign", "gone"), CLEANED.values(), ids=CLEANED)
def test_near_the_quota_the_oldest_go(ours: int, foreign: int, gone: list[int]) -> None:
    stage = Stage(ours, foreign, keep=timedelta(days=30))
    assert stage.templates.clean({"default"}) == len(gone)
    assert stage.ours() == [number for number in range(ours) if number not in gone]
    assert len(stage.cloud.there) == ours + foreign - len(gone)
    assert REGISTRY.get_sample_value("dovetail_aws_launch_templates") == len(stage.cloud.there)


@pytest.mark.parametrize(("there", "told"), [(14, False), (15, True)])
def test_from_seven_tenths_of_the_quota_on_it_is_told(there: int, told: bool, caplog: pytest.LogCaptureFixture) -> None:
    Stage(there, keep=timedelta(days=30)).templates.clean({"default"})
    assert any("launch template quota" in record.getMessage() for record in caplog.records) is told


def test_where_the_quota_is_used_up_a_launch_makes_room() -> None:
    stage = Stage(ours=15, foreign=5)
    stage.make(50, 51, 52)
    assert stage.ours() == [*range(4, 15), 50, 51, 52]


def test_what_was_used_a_moment_ago_does_not_go() -> None:
    stage = Stage(ours=1, foreign=19)
    stage.make(0)
    with pytest.raises(ClientError, match="MaxTemplateLimitExceeded"):
        stage.make(1)
    assert stage.ours() == [0]


def test_where_nothing_can_be_deleted_the_quota_is_told() -> None:
    stage = Stage(ours=15, foreign=5)
    stage.cloud.denied = True
    with pytest.raises(ClientError, match="MaxTemplateLimitExceeded"):
        stage.make(50)


def test_a_template_whose_deletion_failed_is_deleted_again_though_no_list_has_it_yet() -> None:
    stage = Stage()
    stage.make(1)
    stage.cloud.listed, stage.cloud.denied = False, True
    with pytest.raises(DiscoveryError):
        stage.templates.drop("default")
    stage.cloud.denied = False
    assert stage.templates.drop("default") == 1
    assert stage.cloud.there == {}
    assert stage.templates.drop("default") == 0
