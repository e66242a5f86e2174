"""`python -m tests.support.ec2 '{...}'`: run an emulator until standard input closes; its first line says where it listens."""

import json
import sys

from tests.support.ec2.server import Emulator, end_with_parent
from tests.support.ec2.world import Setup


def main() -> None:
    """Start, say where, serve."""
    given = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    port = int(given.pop("port", 0))
    emulator = Emulator(Setup(**{**given, "policies": tuple(given.get("policies", ()))}), port)
    sys.stdout.write(json.dumps({"endpoint": emulator.address}) + "\n")
    sys.stdout.flush()
    end_with_parent()
    emulator.serve()


if __name__ == "__main__":
    main()
