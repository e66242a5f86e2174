"""Where the `dovetail` program begins. Its version is asked in scripts and probes, and is answered before anything is imported."""

import importlib
import sys

from provisioner import __version__


def main() -> None:
    """Print the version, or run the command."""
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"dovetail, version {__version__}\n")
        return
    importlib.import_module("provisioner.cli.main").main()
