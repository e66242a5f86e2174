"""How a container of the image starts, and what the image says of itself. The Dockerfile repeats it, and a test compares the two."""

from typing import Final

from provisioner import __version__
from provisioner.lab.image.debian import USER

ENVIRONMENT: Final = {
    "HOME": "/tmp",  # noqa: S108 - the one directory that a pod mounts writable
    "PATH": "/usr/local/bin:/usr/bin",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONOPTIMIZE": "2",  # the only bytecode in the image
    "PYTHONUNBUFFERED": "1",
}

LABELS: Final = {
    "org.opencontainers.image.title": "Dovetail",
    "org.opencontainers.image.description": "Node autoscaler for Kubernetes on AWS: provisioner, webhook and scheduler extender",
    "org.opencontainers.image.licenses": "Apache-2.0",
    "org.opencontainers.image.version": __version__,
}

PROCESS: Final = {
    "User": f"{USER}:{USER}",
    "Env": [f"{name}={value}" for name, value in ENVIRONMENT.items()],
    "Entrypoint": ["dovetail"],
    "Cmd": ["--help"],
    "WorkingDir": "/",
}
