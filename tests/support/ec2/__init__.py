"""An EC2 (and the services around it) to run against: `Ec2.start` gives it a process and one HTTP port for everything."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self

import urllib3

from tests.support.ec2.faults import Fault, in_turn

__all__ = ["Call", "ClusterOfNodes", "Ec2", "Fault", "Vpc", "in_turn"]

_REPOSITORY: Final = Path(__file__).parents[3]
_START_SECONDS: Final = 30.0


@dataclass(frozen=True)
class ClusterOfNodes:
    """The cluster that instances join.

    Attributes:
        name: as its user data must say it.
        endpoint: URL of its API server, likewise.
        ca_bundle: base64 PEM, likewise.
        kubeconfig: path of an admin's, by which booted instances create their Nodes.
    """

    name: str
    endpoint: str
    ca_bundle: str
    kubeconfig: str


@dataclass(frozen=True)
class Vpc:
    """What is there from the beginning.

    Attributes:
        subnets: by zone, three, tagged karpenter.sh/discovery: <cluster>.
        groups: ids of the security groups that are tagged likewise.
        role: that nodes have.
        profile: an instance profile with that role.
        queue: name of the interruption queue.
        queue_url: its URL.
    """

    region: str
    account: str
    cluster: str
    subnets: Mapping[str, str]
    groups: tuple[str, ...]
    role: str
    profile: str
    queue: str
    queue_url: str

    @property
    def zones(self) -> tuple[str, ...]:
        """Those of the subnets."""
        return tuple(self.subnets)


@dataclass(frozen=True)
class Call:
    """One call that arrived: real time in seconds since 1970, error code or "" for success ("dropped": no answer), None while it runs."""

    at: float
    service: str
    action: str
    code: str | None
    seconds: float


class Ec2:
    """A running emulator; a context manager. Made by `start`."""

    def __init__(self, process: "subprocess.Popen[bytes]", endpoint: str, region: str, lag: float = 0.0) -> None:
        self._process, self.lag = process, lag
        self.endpoint = endpoint
        self.region = region
        self._http = urllib3.PoolManager(maxsize=4, retries=False)
        self._session = self.session()
        self._clients: dict[tuple[str, str], tuple[Any, Mapping[str, Any]]] = {}
        self._lock = threading.Lock()
        facts = self._ask("facts")
        self.vpc = Vpc(
            region=region,
            account=facts["account"],
            cluster=facts["cluster"],
            subnets=facts["subnets"],
            groups=tuple(facts["groups"]),
            role=facts["role"],
            profile=facts["profile"],
            queue=facts["queue"],
            queue_url=f"{endpoint}/{facts['account']}/{facts['queue']}",
        )

    @classmethod
    def start(
        cls,
        cluster: ClusterOfNodes | None = None,
        *,
        seed: int = 1,
        clock_factor: float = 1.0,
        data: Literal["full", "small"] = "full",
        region: str = "us-west-2",
        version: str = "1.36",
        rate_limits: bool = True,
        policies: Sequence[Mapping[str, Any]] = (),
        quotas: Mapping[str, int] | None = None,
        spot_role: bool = True,
        lag: float = 0.0,
        service_cidr: str = "10.96.0.0/16",
        name: str = "dovetail",
        port: int = 0,
        log: Path | None = None,
    ) -> "Ec2":
        """Start one.

        Args:
            cluster: that instances join; without one they run and join nothing.
            seed: of boots, prices, ids.
            clock_factor: so many of EC2's seconds pass in a real one: boots, notices and shortages are so much shorter.
            data: "small" knows some 170 instance types.
            region: its types, zones and prices.
            version: of Kubernetes, as EKS tells it.
            rate_limits: whether EC2's limits on calls hold.
            policies: IAM policy documents that every call must be allowed by; none: all are.
            quotas: vCPUs by "on-demand" and "spot".
            spot_role: whether the service-linked role for spot exists.
            lag: up to so many of EC2's seconds reads are behind what was written, for every instance and template another time.
            service_cidr: of the cluster's Services, as EKS tells it.
            name: of the cluster where there is none.
            port: 0 takes a free one.
            log: where its standard error goes; ours by default.

        Raises:
            RuntimeError: it did not come up.
        """
        setup = {
            **({"name": name} if cluster is None else asdict(cluster)),
            "seed": seed,
            "factor": clock_factor,
            "data": data,
            "region": region,
            "version": version,
            "rates": rate_limits,
            "policies": list(policies),
            "quotas": dict(quotas or {}),
            "spot_role": spot_role,
            "lag": lag,
            "service_cidr": service_cidr,
            "port": port,
        }
        env = {**os.environ, "PYTHONPATH": str(_REPOSITORY)}
        with contextlib.ExitStack() as files:
            sink = files.enter_context(log.open("ab")) if log else None
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.ec2", json.dumps(setup)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=sink,
                env=env,
                cwd=_REPOSITORY,
            )
        try:
            return cls(process, endpoint_of(process), region, lag)
        except BaseException:
            process.kill()
            process.wait()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the process and everything in it."""
        self._http.clear()
        for client, _ in self._clients.values():
            client.close()
        process = self._process
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    def environment(self) -> dict[str, str]:
        """What makes any SDK talk to it, and to nothing else."""
        return environment_of(self.endpoint, self.region)

    def session(self) -> Any:
        """A botocore session of its environment, whatever this process' own is."""
        return session_of(self.endpoint, self.region)

    def client(self, service: str, **options: Any) -> Any:
        """A botocore client of a service; the same for the same options, because making one takes long."""
        key = service, repr(sorted((name, id(value)) for name, value in options.items()))
        with self._lock:
            if key not in self._clients:
                self._clients[key] = self._session.create_client(service, **options), options
            return self._clients[key][0]

    # ------------------------------------------------------------------ what happened

    def log(self) -> list[Call]:
        """Every call since the last reset, in order of arrival, refused and throttled ones too."""
        return [Call(**row) for row in self._ask("calls")]

    def calls(self) -> "Counter[str]":
        """How often each action was called since the last reset."""
        return Counter(call.action for call in self.log())

    def reset_calls(self) -> None:
        """Begin to count anew."""
        self._ask("reset-calls")

    def instances(self, *states: str) -> list[dict[str, Any]]:
        """Every instance: id, state, type, zone, capacity_type, node, joined, not_joined, tags, interrupted, usd_per_hour; only those in `states`, if given."""
        found: list[dict[str, Any]] = self._ask("instances")
        return [one for one in found if not states or one["state"] in states]

    def alive(self) -> list[dict[str, Any]]:
        """Those that are paid for: pending and running."""
        return self.instances("pending", "running")

    # ------------------------------------------------------------------ what is to happen

    def script(self, faults: Iterable[Fault] = ()) -> None:
        """Replace the fault script; without faults nothing goes wrong any more."""
        self._ask("script", faults=[asdict(one) for one in faults])

    def hits(self) -> list[tuple[int, int]]:
        """Of every fault of the script, in its order: calls that matched it, and those that it hit."""
        return [(matched, hit) for matched, hit in self._ask("hits")]

    def interrupt(self, instance_id: str, kind: str = "spot", **details: Any) -> Any:
        """Trouble for one instance; the event that was sent, where one was.

        Args:
            instance_id: whose.
            kind: "spot" (notice now, end after `seconds`, 120), "reservation-interruption" (likewise), "rebalance", "terminate" and "stop"
                (by somebody else), "scheduled-change" (a Health event for in `seconds`, and in DescribeInstanceStatus), "schedule" (in
                DescribeInstanceStatus alone; `code`, `done` "Completed" or "Canceled"), "impair" (`check` instance, system or ebs, since
                `seconds`), "recover".
            **details: as named there.
        """
        return self._ask("interrupt", instance=instance_id, kind=kind, **details)

    def send(self, body: str) -> None:
        """Put any text into the interruption queue."""
        self._ask("send", body=body)

    def skip(self, seconds: float) -> None:
        """Let so many of EC2's seconds pass at once."""
        self._ask("skip", seconds=seconds)

    # ------------------------------------------------------------------ what there is

    def release_images(self) -> None:
        """New images of every family come out and are the recommended ones."""
        self._ask("release")

    def add_image(
        self,
        image_id: str,
        name: str,
        arch: str = "x86_64",
        *,
        family: str = "custom",
        created: str = "",
        boot_mode: str = "",
        ena: bool = True,
        **tags: str,
    ) -> str:
        """An image of the account's own; `family` is what its instances make of user data."""
        made: str = self._ask(
            "image",
            id=image_id,
            name=name,
            arch=arch,
            family=family,
            created=created,
            boot_mode=boot_mode,
            ena=ena,
            tags=tags,
        )
        return made

    def protect(self, instance_id: str, *, really: bool = True) -> None:
        """Protect an instance from TerminateInstances, or do so no more, as its owner does."""
        self.client("ec2").modify_instance_attribute(InstanceId=instance_id, DisableApiTermination={"Value": really})

    def deprecate_image(self, image_id: str) -> None:
        """From now on it is deprecated."""
        self._ask("deprecate", id=image_id)

    def add_subnet(self, zone: str, cidr: str, tags: Mapping[str, str]) -> str:
        """One more subnet of the VPC, whose addresses are 10.0.0.0/16; the first three zones take those below 10.0.96.0."""
        made: str = self._ask("subnet", zone=zone, cidr=cidr, tags=dict(tags))
        return made

    def add_group(self, group_id: str, name: str, tags: Mapping[str, str]) -> str:
        """One more security group of the VPC."""
        made: str = self._ask("group", id=group_id, name=name, tags=dict(tags))
        return made

    def leave_addresses(self, subnet_id: str, free: int) -> None:
        """So many free addresses are left in a subnet."""
        self._ask("free", id=subnet_id, free=free)

    def scatter_addresses(self, subnet_id: str) -> None:
        """Leave a subnet no 16 contiguous addresses, however many are free."""
        self._ask("scatter", id=subnet_id)

    def add_reservation(self, instance_type: str, zone: str, count: int = 1, **details: Any) -> str:
        """A capacity reservation: match ("targeted"), kind ("default" or "capacity-block"), interruptible, seconds until it ends, owner, tags."""
        made: str = self._ask("reservation", type=instance_type, zone=zone, count=count, **details)
        return made

    def add_role(self, name: str, path: str = "/") -> str:
        """An IAM role for instances; its ARN."""
        made: str = self._ask("role", name=name, path=path)
        return made

    def shift(self, zone: str, *, seconds: float = 3600.0, cancel: bool = False) -> None:
        """Begin or cancel a zonal shift away from a zone."""
        self._ask("shift", zone=zone, seconds=seconds, cancel=cancel)

    def prices(self, offerings: Iterable[tuple[str, str, str]]) -> dict[tuple[str, str, str], float]:
        """What (type, zone, capacity type) cost now, per hour."""
        rows = self._ask("prices", offerings=[list(one) for one in offerings])
        return {(name, zone, kind): price for name, zone, kind, price in rows}

    def left(self) -> dict[str, Any]:
        """What lives on beside instances: templates (name to tags), profiles, volumes, bodies of the messages in the queue."""
        found: dict[str, Any] = self._ask("left")
        return found

    def _ask(self, command: str, **asked: Any) -> Any:
        answer = self._http.request(
            "POST", f"{self.endpoint}/_ec2/{command}", body=json.dumps(asked).encode(), timeout=30.0
        )
        found = json.loads(answer.data)
        if answer.status != 200:
            raise RuntimeError(f"{command}: {found['error']}")
        return found


def environment_of(endpoint: str, region: str) -> dict[str, str]:
    """What makes any SDK talk to one endpoint, and to nothing else."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "AWS_CONFIG_FILE": "/nonexistent/config",
        "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent/credentials",
        "AWS_EC2_METADATA_DISABLED": "true",
        "NO_PROXY": "127.0.0.1,localhost",
    }


def session_of(endpoint: str, region: str) -> Any:
    """A botocore session of that environment, whatever this process' own is."""
    import botocore.session

    made = botocore.session.Session()
    given = environment_of(endpoint, region)
    made.set_config_variable("config_file", given["AWS_CONFIG_FILE"])
    made.set_config_variable("credentials_file", given["AWS_SHARED_CREDENTIALS_FILE"])
    made.set_config_variable("region", region)
    made.set_credentials(given["AWS_ACCESS_KEY_ID"], given["AWS_SECRET_ACCESS_KEY"])
    create = made.create_client

    def to_us(service_name: str, **options: Any) -> Any:
        return create(service_name, **{"endpoint_url": endpoint, **options})

    made.create_client = to_us
    return made


def endpoint_of(process: "subprocess.Popen[bytes]") -> str:
    """Where it says that it listens."""
    stream = process.stdout
    assert stream is not None
    timer = threading.Timer(_START_SECONDS, process.kill)
    timer.start()
    try:
        line = stream.readline()
    finally:
        timer.cancel()
    if not line:
        raise RuntimeError("the server did not come up")
    return str(json.loads(line)["endpoint"])
