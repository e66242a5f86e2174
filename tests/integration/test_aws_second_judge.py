"""A second judge beside our emulator of EC2: moto's server is asked what the product asks, and AWS's own model of its services looks at every call.

What stays with the emulator, because moto has none of it, or gives every launch what it asks for first: shortages and prices (test_aws_shortage, _scarcity,
_catalogue_cost), reservations, placement groups, quotas and failed launches (test_aws_launching, _launch_faults), images that AWS publishes (test_aws_discovery),
permissions (test_aws_check) and what happens to instances by themselves (test_aws_day_two, _interruption). Where both can answer and differ, one is wrong: ours is mended, or the difference stands in `MOTOS` with AWS's page.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.awscalls import CALLS, CLUSTER, OUR_OPERATIONS, OURS, Place, of_emulator, of_moto
from tests.support.ec2 import ClusterOfNodes, Ec2
from tests.support.motoserver import MotoServer
from tests.support.servicemodel import Watch, calls_of, product, services_of, watching

_API: Final = "https://docs.aws.amazon.com/AWSEC2/latest/APIReference"

MOTOS: Final[Mapping[tuple[str, ...], str]] = {
    ("launch templates are kept as they were sent", "not kept"): (
        f"moto puts the template's own tags into its data: {_API}/API_CreateLaunchTemplate.html"
    ),
    ("launch templates are kept as they were sent", "deleted twice"): (
        f"moto wants an ID where a name is given: {_API}/errors-overview.html, InvalidLaunchTemplateName.NotFoundException"
    ),
    ("what is missing is refused by the same codes", "a template by name"): f"as above: {_API}/errors-overview.html",
    **{
        ("fleets launch instances that are described, tagged and ended", kind, "described", said): why
        for said, why in {
            "zone id": f"moto's Placement has no AvailabilityZoneId: {_API}/API_Placement.html",
            "security groups": f"moto's fleets look at no interfaces of the template: {_API}/API_Instance.html",
            "instance profile": f"moto's fleets look at no profile of the template: {_API}/API_Instance.html",
        }.items()
        for kind in ("on-demand", "spot")
    },
    ("fleets launch instances that are described, tagged and ended", "spot", "described", "capacity type"): (
        f"moto's spot instances have no SpotInstanceRequestId: {_API}/API_Instance.html"
    ),
}
"""Where moto differs from AWS, by row and what is said there."""


class Judges:
    """Both accounts, and what the product made of their answers; every row is asked once."""

    def __init__(self, emulator: Place, moto: Place) -> None:
        self._places = {"emulator": emulator, "moto": moto}
        self.watches: dict[str, Watch] = {}
        self.said: dict[tuple[str, str], Any] = {}

    def ask(self) -> None:
        """Both, all rows; the emulator those that it alone can answer, too."""
        for who, place in self._places.items():
            with watching() as watch:
                for name, row in CALLS.items():
                    self.said[who, name] = row(place)
                if who == "emulator":
                    for name, (row, _) in OURS.items():
                        self.said[who, name] = row(place)
            self.watches[who] = watch


@pytest.fixture(scope="module")
def judges() -> Iterator[Judges]:
    cluster = ClusterOfNodes(CLUSTER, "https://cluster.example", "Y2E=", "")
    with Ec2.start(cluster, rate_limits=False, data="small") as ec2, MotoServer.start() as moto:
        places = of_emulator(ec2), of_moto(moto.session())
        made = Judges(*places)
        made.ask()
        yield made
        for one in places:
            one.aws.close()


def flat(said: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """What is said, by the keys that lead to it."""
    if not isinstance(said, dict):
        return {path: said}
    return {key: value for name, inner in said.items() for key, value in flat(inner, (*path, name)).items()}


@pytest.mark.parametrize("row", CALLS)
def test_both_judges_say_the_same(judges: Judges, row: str) -> None:
    ours, motos = (flat(judges.said[who, row], (row,)) for who in ("emulator", "moto"))
    differ = {key: (ours.get(key), motos.get(key)) for key in {*ours, *motos} if ours.get(key) != motos.get(key)}
    known = {key: one for key in differ for one in MOTOS if key[: len(one)] == one}
    assert {key: said for key, said in differ.items() if key not in known} == {}
    stale = {one for one in MOTOS if one[0] == row} - set(known.values())
    assert stale == set(), "moto says the same by now: the difference leaves the table"


@pytest.mark.parametrize("row", OURS)
def test_what_only_the_emulator_answers(judges: Judges, row: str) -> None:
    assert judges.said["emulator", row] == OURS[row][1]


@pytest.mark.parametrize("who", ["emulator", "moto"])
def test_every_request_and_every_member_that_is_read_is_in_the_service_model(judges: Judges, who: str) -> None:
    watch = judges.watches[who]
    assert list(watch.faults) == []
    read_by_product = {(file, member) for file, _, member in watch.reads if "/provisioner/" in file}
    assert len(read_by_product) > 100  # the product's reads were watched, and not only those of the rows


def test_the_emulator_answers_in_words_of_the_service_model(judges: Judges) -> None:
    assert list(judges.watches["emulator"].strange) == []


def test_every_operation_that_the_product_names_was_called(judges: Judges) -> None:
    """A new call needs a row of its own, or a reason why moto cannot answer it."""
    files = product()
    named = {call for call in calls_of(files, services_of(files)) if call[0] != "s3"}
    # the emulator is of what launches need: S3 is judged by moto alone, in tests/unit/ec2/test_segment_bucket.py
    called = {who: watch.operations for who, watch in judges.watches.items()}
    assert named - called["emulator"] == set()
    assert named - called["moto"] == set(OUR_OPERATIONS)


def test_the_emulator_answers_with_every_member_that_moto_answers_with(judges: Judges) -> None:
    """As far as the product asks for them: what both have may differ, what ours lacks is never read in any other test."""
    missing = judges.watches["moto"].there - judges.watches["emulator"].there
    assert missing == set()


def test_the_server_is_on_the_loopback_alone_and_ends(tmp_path: Path) -> None:
    with MotoServer.start() as one:
        assert one.endpoint.startswith("http://127.0.0.1:")
    assert one.ended
