"""What every test may use; the fixtures themselves are in tests/support."""

pytest_plugins = ["tests.support.plane"]
