"""Every row: where a workload could be harmed, then money, then what changes."""

from tests.scenarios import money, renewal, safety
from tests.scenarios.row import Row

TABLES: dict[str, tuple[Row, ...]] = {"safety": safety.ROWS, "money": money.ROWS, "renewal": renewal.ROWS}
ROWS: tuple[Row, ...] = tuple(one for table in TABLES.values() for one in table)
