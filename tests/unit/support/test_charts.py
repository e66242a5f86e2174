"""A machine without a network skips what needs helm and names it; CI fails."""

import pytest

from provisioner.lab.devcluster.errors import BuildError
from tests.support import charts


@pytest.mark.parametrize(("ci", "outcome"), [("", pytest.skip.Exception), ("true", BuildError)])
def test_tools_that_cannot_be_built_skip_a_test_but_in_ci(
    ci: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object) -> None:
        raise BuildError("the Go module proxy cannot be reached", "Check the network")

    monkeypatch.setattr(charts, "chart_tools", unreachable)
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="the Go module proxy cannot be reached"):
        charts.tools.__wrapped__()
