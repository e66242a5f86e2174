"""The provisioner, and what webhook and extender share with it."""

__version__ = "0.1.0"
