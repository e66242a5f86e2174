"""Where the DaemonSet controller puts pods."""

from collections.abc import Sequence

import pytest

from provisioner.apis.pods import PodShape
from provisioner.apis.shapes import unjudged
from provisioner.state.daemons import runs_on
from provisioner.values.taints import Taint, Toleration
from tests.support.problems import shape, term

LABELS = {"kubernetes.io/os": "linux", "tier": "gold"}
TAINT = Taint(key="dedicated", value="batch", effect="NoSchedule")
SOFT = Taint(key="dedicated", value="batch", effect="PreferNoSchedule")
CASES: dict[str, tuple[PodShape, Sequence[Taint], bool]] = {
    "one that asks for nothing runs everywhere": (shape(), (), True),
    "a taint that it does not tolerate keeps it off": (shape(), (TAINT,), False),
    "a soft taint does not": (shape(), (SOFT,), True),
    "one that tolerates the taint runs": (shape(tolerations=(Toleration(operator="Exists"),)), (TAINT,), True),
    "a selector that matches": (shape(selector={"tier": "gold"}), (), True),
    "a selector with another value": (shape(selector={"tier": "tin"}), (), False),
    "a selector on a label that is not there": (shape(selector={"zone": "a"}), (), False),
    "one term of two matches": (shape(terms=[term(("tier", "In", ["tin"])), term(("tier", "Exists", []))]), (), True),
    "no term matches": (shape(terms=[term(("tier", "In", ["tin"]))]), (), False),
    "all expressions of a term must match": (
        shape(terms=[term(("tier", "Exists", []), ("kubernetes.io/os", "NotIn", ["linux"]))]),
        (),
        False,
    ),
    "NotIn matches a label that is absent": (shape(terms=[term(("zone", "NotIn", ["a"]))]), (), True),
    "an expression on a label that is absent": (shape(terms=[term(("zone", "In", ["a"]))]), (), False),
    "an empty term matches nothing": (shape(terms=[term()]), (), False),
    "a term that cannot be read matches nothing": (shape(terms=[term(("tier", "Exists", ["gold"]))]), (), False),
    "a shape that cannot be judged runs nowhere": (unjudged("default", {}, "cpu: what?"), (), False),
}


@pytest.mark.parametrize(("daemon", "taints", "runs"), CASES.values(), ids=CASES.keys())
def test_a_daemon_runs_where_it_is_let(daemon: PodShape, taints: Sequence[Taint], runs: bool) -> None:
    assert runs_on(daemon, LABELS, taints) is runs
