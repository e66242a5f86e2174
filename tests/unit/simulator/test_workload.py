"""The file of a day: what is read, and what is said of what is wrong."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.simulator.errors import SimulationError
from provisioner.simulator.workload import Apply, Arrival, End, Scale, Shortage, day_of, pods_in
from tests.unit.simulator.days import template

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "simulate.md"


def test_the_day_of_the_guide_is_one() -> None:
    (text,) = re.findall(r"```yaml\n(durationSeconds.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    day = day_of(yaml.safe_load(text), "day.yaml")
    assert {type(one) for one in day.changes} == {Arrival, Scale, End, Apply, Shortage}
    assert [one.at for one in day.changes] == sorted(one.at for one in day.changes)


ARRIVAL: dict[str, Any] = {"type": "Arrival", "at": 0, "name": "web", "template": template("web")}


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"changes": []}, "missing required field `durationSeconds`"),
        ({"durationSeconds": 0, "changes": []}, "Expected `float` > 0.0"),
        ({"durationSeconds": 60, "changes": [{**ARRIVAL, "count": -1}]}, r"\$.changes\[0\].count"),
        ({"durationSeconds": 60, "changes": [{**ARRIVAL, "replicas": 3}]}, "unknown field `replicas`"),
        ({"durationSeconds": 60, "changes": [{**ARRIVAL, "type": "Birth"}]}, "Invalid value 'Birth'"),
        ({"durationSeconds": 60, "changes": [{**ARRIVAL, "at": 60}]}, r"changes\[0\].at: 60 s is not within the day"),
        ({"durationSeconds": 60, "changes": [{**ARRIVAL, "template": {}}]}, "spec.containers: is missing"),
        ({"durationSeconds": 60, "changes": [{**ARRIVAL, "name": "We b"}]}, r"\$.changes\[0\].name"),
        ({"durationSeconds": 60, "changes": [{**ARRIVAL, "namespace": ""}]}, r"\$.changes\[0\].namespace"),
        ({"durationSeconds": 60, "changes": [{"type": "Apply", "at": 0, "object": {}}]}, "metadata.name: is missing"),
        ({"durationSeconds": 60, "changes": [{"type": "Shortage", "at": 9, "until": 9}]}, "until: 9 s is not after at"),
        ({"durationSeconds": 60, "changes": [{"type": "Shortage", "at": 9}]}, "missing required field `until`"),
    ],
)
def test_a_wrong_day_is_refused_with_the_field(document: object, problem: str) -> None:
    with pytest.raises(SimulationError, match=problem) as told:
        day_of(document, "day.yaml")
    assert str(told.value).startswith("day.yaml: ")


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"spec": None}, r"got `null` - at `\$.spec`"),
        ({"metadata": None}, r"got `null` - at `\$.metadata`"),
        ({"metadata": {"labels": {"app": 1}}}, r"got `int` - at `\$.metadata.labels"),
        (template("web", cpu="lots"), r"spec.containers\[0\].resources.requests\[cpu\]: 'lots' is not a quantity"),
        (template("web", cpu="-1"), "negative amount"),
        (template("web", affinity={"podAffinity": 3}), r"\$.spec.affinity.podAffinity"),
        (template("web", terminationGracePeriodSeconds="1"), r"\$.spec.terminationGracePeriodSeconds"),
        (template("web", topologySpreadConstraints=[{"maxSkew": 0}]), "maxSkew: must be greater than zero"),
        (template("web", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]), "leave the volume out"),
        (template("web", resourceClaims=[{"name": "c", "resourceClaimName": "c"}]), "devices are not simulated"),
    ],
)
def test_a_template_that_makes_no_pods_is_refused(wrong: dict[str, object], problem: str) -> None:
    changes = [ARRIVAL, {**ARRIVAL, "name": "other", "template": {**ARRIVAL["template"], **wrong}}]
    with pytest.raises(SimulationError, match=problem) as told:
        day_of({"durationSeconds": 60, "changes": changes}, "day.yaml")
    assert str(told.value).startswith("day.yaml: changes[1].template")


def test_pods_of_a_whole_day_are_bounded() -> None:
    many = [{**ARRIVAL, "name": f"web-{number}", "count": 200_000} for number in range(3)]
    with pytest.raises(SimulationError, match="600,000 pods come in this day; use at most 500,000"):
        day_of({"durationSeconds": 60, "changes": many}, "day.yaml")


def test_what_scaling_adds_is_counted_and_what_it_takes_away_is_not() -> None:
    scales = [{"type": "Scale", "at": 1, "name": "web", "count": count} for count in (5, 2, 4)]
    day = day_of({"durationSeconds": 60, "changes": [{**ARRIVAL, "count": 3}, *scales]}, "day.yaml")
    assert pods_in(day.changes) == 3 + 2 + 2
