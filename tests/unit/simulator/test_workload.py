"""The file of a day: what is read, and what is said of what is wrong."""

import re
from pathlib import Path

import pytest
import yaml

from provisioner.simulator.errors import SimulationError
from provisioner.simulator.workload import Apply, Arrival, End, Scale, day_of
from tests.unit.simulator.days import template

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "simulate.md"


def test_the_day_of_the_guide_is_one() -> None:
    (text,) = re.findall(r"```yaml\n(durationSeconds.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    day = day_of(yaml.safe_load(text), "day.yaml")
    assert {type(one) for one in day.changes} == {Arrival, Scale, End, Apply}
    assert [one.at for one in day.changes] == sorted(one.at for one in day.changes)


ARRIVAL = {"type": "Arrival", "at": 0, "name": "web", "template": template("web")}


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
        ({"durationSeconds": 60, "changes": [{"type": "Apply", "at": 0, "object": {}}]}, "metadata.name: is missing"),
    ],
)
def test_a_wrong_day_is_refused_with_the_field(document: object, problem: str) -> None:
    with pytest.raises(SimulationError, match=problem) as told:
        day_of(document, "day.yaml")
    assert str(told.value).startswith("day.yaml: ")
