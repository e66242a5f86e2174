"""Every row: where a workload could be harmed, then money, then what changes, then how pods and old manifests are admitted."""

from tests.scenarios import (
    admission,
    endings,
    full,
    health,
    health_ec2,
    money,
    old,
    reboots,
    renewal,
    safety,
    spreading,
)
from tests.scenarios.row import Row

TABLES: dict[str, tuple[Row, ...]] = {
    "safety": safety.ROWS,
    "money": money.ROWS,
    "renewal": renewal.ROWS,
    "endings": endings.ROWS,
    "health": health.ROWS,
    "reboots": reboots.ROWS,
    "health_ec2": health_ec2.ROWS,
    "full": full.ROWS,
    "spreading": spreading.ROWS,
    "admission": admission.ROWS,
    "old": old.ROWS,
}
ROWS: tuple[Row, ...] = tuple(one for table in TABLES.values() for one in table)
