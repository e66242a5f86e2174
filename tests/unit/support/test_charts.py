"""A machine without a network skips what needs tools that are built, and says why; in CI that is a failure (test_skips)."""

import pytest

from provisioner.lab.devcluster.errors import BuildError
from tests.support import charts, promtool


@pytest.mark.parametrize(
    ("where", "builds", "tools"), [(charts, "chart_tools", charts.tools), (promtool, "find", promtool.promtool)]
)
def test_tools_that_cannot_be_built_skip_a_test(
    where: object, builds: str, tools: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise BuildError("the Go module proxy cannot be reached", "Check the network")

    monkeypatch.setattr(where, builds, unreachable)
    with pytest.raises(pytest.skip.Exception, match="cannot be built: the Go module proxy cannot be reached"):
        tools.__wrapped__()  # type: ignore[attr-defined]
