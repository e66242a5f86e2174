"""`python -m provisioner.lab.image`: see `make image`, `make lock` and the Dockerfile."""

import argparse
import os
import subprocess
from pathlib import Path

from provisioner.lab.image.layout import Origin
from provisioner.lab.image.steps import ARCHITECTURES, build, write_image

SOURCE = Path(__file__).parents[3]


def main() -> None:
    """Do what the command line asks."""
    parser = argparse.ArgumentParser(
        prog="python -m provisioner.lab.image", description="Build the image without a container engine."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    files = commands.add_parser("files", help="write the files of each layer for one architecture")
    files.add_argument("architecture", choices=ARCHITECTURES)
    files.add_argument("directory", type=Path)
    image = commands.add_parser(
        "image", help="write an OCI image layout for all architectures, and bills of materials beside it"
    )
    image.add_argument("directory", type=Path)
    commands.add_parser("lock", help="write base.json from what Debian's archive has today")
    given = parser.parse_args()
    if given.command == "files":
        build(given.architecture, SOURCE, given.directory)
    elif given.command == "image":
        print(write_image(SOURCE, given.directory, _origin()))  # noqa: T201 - what the caller pushes
    else:
        from provisioner.lab.image.locking import lock  # noqa: PLC0415 - needs what the build does not

        lock()


def _origin() -> Origin:
    asked = subprocess.run(
        [  # noqa: S607 - git is where PATH says
            "git",
            "log",
            "-1",
            "--format=%H %ct",
        ],
        cwd=SOURCE,
        capture_output=True,
        text=True,
        check=False,
    )
    revision, _, seconds = asked.stdout.strip().partition(" ")
    return Origin(revision, int(os.environ.get("SOURCE_DATE_EPOCH") or seconds or 0))


if __name__ == "__main__":
    main()
