"""Every row: where a workload could be harmed, then money, then what changes, then how pods and old manifests are admitted."""

from tests.scenarios import admission, health, money, old, renewal, safety
from tests.scenarios.row import Row

TABLES: dict[str, tuple[Row, ...]] = {
    "safety": safety.ROWS,
    "money": money.ROWS,
    "renewal": renewal.ROWS,
    "health": health.ROWS,
    "admission": admission.ROWS,
    "old": old.ROWS,
}
ROWS: tuple[Row, ...] = tuple(one for table in TABLES.values() for one in table)
