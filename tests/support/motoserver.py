"""moto's server as a process of its own: what it says of AWS is not what we made up. `MotoServer.start` gives it one port of the loopback."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, Self

import botocore.session

from tests.support.ec2 import endpoint_of, session_of
from tests.support.ec2.server import end_with_parent

REGION: Final = "us-west-2"
_REPOSITORY: Final = Path(__file__).parents[2]


class MotoServer:
    """A running server; a context manager."""

    def __init__(self, process: "subprocess.Popen[bytes]", endpoint: str) -> None:
        self._process, self.endpoint = process, endpoint

    @classmethod
    def start(cls) -> Self:
        """Start one.

        Raises:
            RuntimeError: it did not come up.
        """
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.motoserver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # one line a request
            env={**os.environ, "PYTHONPATH": str(_REPOSITORY), "MOTO_EC2_LOAD_DEFAULT_AMIS": "true"},
            cwd=_REPOSITORY,
        )
        try:
            return cls(process, endpoint_of(process))
        except BaseException:
            process.kill()
            process.wait()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        self._process.kill()
        self._process.wait()

    @property
    def ended(self) -> bool:
        """Whether its process has."""
        return self._process.poll() is not None

    def session(self) -> botocore.session.Session:
        """A botocore session whose clients talk to it."""
        return session_of(self.endpoint, REGION)


def main() -> None:
    """Serve until standard input closes; the first line says where."""
    from moto.server import ThreadedMotoServer

    server: Any = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    sys.stdout.write(json.dumps({"endpoint": f"http://{host}:{port}"}) + "\n")
    sys.stdout.flush()
    end_with_parent()
    server._thread.join()


if __name__ == "__main__":
    main()
