"""What every test may use; the fixtures themselves are in tests/support."""

import pytest

pytest_plugins = ["tests.support.plane"]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests on a control plane begin first: they are long and mostly wait, and the short ones fill both cores at the end."""
    items.sort(key=lambda item: "integration" not in item.path.parts)
