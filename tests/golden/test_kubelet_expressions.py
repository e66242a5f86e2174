"""What the provider itself makes of expressions in a class's kubelet: another value would launch nodes that differ from their plan."""

import json
import pathlib
from typing import Any

import pytest

from provisioner.ec2.market import kubelet_formulas
from provisioner.ec2.market.kubelet_formulas import FormulaError

DATA = json.loads((pathlib.Path(__file__).parents[1] / "data/golden-kubelet-expressions.json").read_text("utf-8"))
ROWS: dict[str, dict[str, Any]] = {row["expression"]: row for row in DATA["rows"]}
SCOPES = {name: {**values, "instance_type": name} for name, values in DATA["types"].items()}


@pytest.mark.parametrize("text", ROWS)
def test_an_expression(text: str) -> None:
    row = ROWS[text]
    assert (not kubelet_formulas.syntax_problem(text)) is row["valid"]
    for name, value in row.get("values", {}).items():
        pods = value if value is not None and 0 <= value < 1 << 31 else None
        assert found(kubelet_formulas.pods, text, SCOPES[name]) == pods, name
        for resource in ("cpu", "memory", "ephemeral-storage", "pid"):
            amount = found(kubelet_formulas.reserved, ((resource, text),), SCOPES[name])
            want = row["reserved"][name].get(resource)
            assert amount == (None if want is None else ((resource, want),)), (name, resource)


def found(function: Any, *given: Any) -> Any:
    try:
        return function(*given)
    except FormulaError:
        return None
