"""Every metric that the programs serve."""

import importlib
import pkgutil
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

import certs
import extender
import provisioner
import webhook
from provisioner.ec2.market.catalogue import Region
from provisioner.ec2.market.metrics import lines as market_lines
from provisioner.ec2.market.prices import PriceList
from provisioner.ec2.market.unavailable_offerings import Shortages
from provisioner.lab.reference.markdown import code, page, table
from provisioner.observability.conditions import condition_lines
from provisioner.observability.nodes import cost_lines, node_lines
from provisioner.observability.pods import PodTimes, state_lines
from provisioner.support import metrics
from provisioner.support.clock import SystemClock

_NOW: Final = datetime(2000, 1, 1, tzinfo=UTC)
_KARPENTERS: Final = ("karpenter_", "operator_", "controller_runtime_", "workqueue_", "leader_election_", "aws_sdk_go_")
_HEADER: Final = re.compile(r"# HELP (\S+) (.*)\n# TYPE \S+ (\S+)\n")


def text() -> str:
    """docs/reference/metrics.md. Metrics are declared where they are used, so every module is imported."""
    for package in (provisioner, webhook, extender, certs):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    families = sorted(metrics.declared())
    return page(
        "Metrics",
        "The metrics of the first table have the names, types and labels of Karpenter 1.15, its AWS provider and their libraries, so that dashboards and "
        "alerts carry over; [Known flaws](../known-flaws.md) lists the differences. [Monitoring](../guides/monitoring.md) has alerts and dashboards.\n",
        _rows(one for one in families if one.name.startswith(_KARPENTERS)),
        "## Dovetail's own\n",
        _rows(one for one in families if not one.name.startswith(_KARPENTERS)),
        "## Written at the scrape\n",
        "Series of single nodes, pods, NodePools and conditions. The leader writes them, with the labels that Karpenter gives them;\n"
        "`--disable-cluster-state-observability` leaves them out.\n",
        table(("metric", "type", "meaning"), sorted(_scraped())),
        "## Instance types of EC2, written at the scrape\n",
        "Every replica writes them.\n",
        table(("metric", "type", "meaning"), sorted(_headers(market_lines(Region(), PriceList(), Shortages(), _NOW)))),
    )


def _scraped() -> Iterator[tuple[str, str, str]]:
    return _headers(
        [  # of an empty cluster only the headers are written
            *node_lines((), lambda _: None, frozenset(), _NOW),
            *cost_lines((), (), lambda _: {})[0],
            *condition_lines((), _NOW),
            *state_lines((), lambda _: None),
            *PodTimes(SystemClock()).lines(()),
        ]
    )


def _headers(lines: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    for line in lines:
        if match := _HEADER.match(line):
            yield code(match[1]), match[3], match[2]


def _rows(families: Iterable[metrics.MetricFamily]) -> str:
    return table(
        ("metric", "type", "labels", "meaning"),
        [(code(one.name), one.kind, ", ".join(map(code, one.labels)), one.doc) for one in families],
    )
