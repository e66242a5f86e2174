"""The HTTP side: one port for every service, and /_ec2/ for whoever runs the emulator."""

import contextlib
import json
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import unquote

from tests.support.ec2.admin import Admin
from tests.support.ec2.faults import Fault
from tests.support.ec2.limits import Limits
from tests.support.ec2.motos import Iam
from tests.support.ec2.nodes import Nodes
from tests.support.ec2.protocol import (
    AwsError,
    ec2_answer,
    error_answer,
    form_of,
    operations,
    parse_form,
    query_answer,
)
from tests.support.ec2.queues import Queues
from tests.support.ec2.services import Services
from tests.support.ec2.world import ACCOUNT, Setup, World, denied

ADMIN: Final = "/_ec2/"
_STALE_SECONDS: Final = 10.0
_XML: Final = {"Content-Type": "text/xml;charset=UTF-8"}
_JSON: Final = {"Content-Type": "application/x-amz-json-1.1"}
_NOT_FOUND: Final = {
    "CreateFleet": "InvalidLaunchTemplateName.NotFoundException",
    "RunInstances": "InvalidAMIID.NotFound",
    "DeleteLaunchTemplate": "InvalidLaunchTemplateName.NotFoundException",
    "DescribeLaunchTemplates": "InvalidLaunchTemplateName.NotFoundException",
    "DescribeSubnets": "InvalidSubnetID.NotFound",
    "DescribeSecurityGroups": "InvalidGroup.NotFound",
    "DescribeImages": "InvalidAMIID.NotFound",
    "DescribeCapacityReservations": "InvalidCapacityReservationId.NotFound",
    "DescribePlacementGroups": "InvalidPlacementGroup.Unknown",
    "GetParameter": "ParameterNotFound",
    "DescribeCluster": "ResourceNotFoundException",
    "GetManagedResource": "ResourceNotFoundException",
    "GetQueueUrl": "QueueDoesNotExist",
    "ReceiveMessage": "QueueDoesNotExist",
    "DeleteMessage": "QueueDoesNotExist",
}

Answer = tuple[int, Mapping[str, str], bytes]


class _DropError(Exception):
    """The connection ends without an answer."""


class Emulator:
    """Everything, behind one HTTP port.

    Args:
        setup: how it was started.
        port: 0 takes a free one.
    """

    def __init__(self, setup: Setup, port: int = 0) -> None:
        self._server = _Server(("127.0.0.1", port), _handler(self))
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.iam = Iam(ACCOUNT)
        self.queues = Queues(f"{self.address}/{ACCOUNT}", f"arn:aws:sqs:{setup.region}:{ACCOUNT}")
        self.nodes = Nodes(setup)
        self.world = World(
            setup,
            self.iam.profile_role,
            boots=self._boot,
            boots_again=self.nodes.reboot,
            ends=self._end,
            told=self._tell,
        )
        self.nodes.watch(self.world, self.iam.profile_role)
        self.services = Services(self.world, self.iam)
        self.admin = Admin(self.world, self.iam, self.queues)
        self._limits = Limits()
        self._queue = setup.name
        self.queues.create(setup.name, MessageRetentionPeriod="300")
        self.iam.create_role(f"KarpenterNodeRole-{setup.name}")
        self.iam.create_profile(f"{setup.name}-node", f"KarpenterNodeRole-{setup.name}")

    def serve(self) -> None:
        """Answer until the process ends."""
        self._server.serve_forever(0.5)

    # ------------------------------------------------------------------ what happens by itself

    def _boot(self, instance: Any) -> None:
        self.nodes.boot(instance)

    def _end(self, instance: Any) -> None:
        self.nodes.end(instance)

    def _tell(self, event: dict[str, Any]) -> None:
        with contextlib.suppress(AwsError):  # the queue may have been deleted
            self.queues.send(self._queue, json.dumps(event))

    # ------------------------------------------------------------------ calls

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """One request.

        Raises:
            _DropError: it gets no answer.
        """
        service = _service(headers)
        action, read = _read(service, method, path, headers, body)
        call = self.admin.note(service, action)
        try:
            request = read()
            self.services.check_place(service, _scope(headers, 2))
            answer = self._answer(service, action, request, (method, path, headers, body))
            call.done("")
            return answer
        except AwsError as error:
            call.done(error.code)
            content, told = error_answer(service, error)
            return error.status, told, content
        except _DropError:
            call.done("dropped")
            raise
        except Exception as error:  # noqa: BLE001 - a failure of the emulator must look like one
            traceback.print_exc(file=sys.stderr)
            call.done("InternalError")
            content, told = error_answer(service, AwsError("InternalError", f"the emulator failed: {error!r}", 500))
            return 500, told, content

    def _answer(
        self, service: str, action: str, request: Mapping[str, Any], raw: tuple[str, str, Mapping[str, str], bytes]
    ) -> Answer:
        """The order: how often one calls, what is asked, by whom, and then the rest; a scripted fault comes after the first."""
        world = self.world
        with world.lock:
            allowed = not world.setup.rates or service != "ec2" or self._limits.allows(action)
            faults = world.script.of_call(action, request) if allowed else []  # a call hits one trouble at a time
        if not allowed:
            raise AwsError("RequestLimitExceeded", "Request limit exceeded.", 503)
        stale = 0.0
        late: Fault | None = None
        for fault in faults:
            if fault.kind == "hang":
                time.sleep(fault.seconds or 30.0)
            elif fault.kind == "stale":
                stale = max(stale, fault.seconds or _STALE_SECONDS)
            elif fault.kind == "timeout-after-effect":
                late = fault
            else:
                raise _error_of(fault, service, action)
        self.services.validate(service, action, request)
        self.services.check_permission(service, action, request)
        answer = self._carry_out(service, action, request, stale, raw)
        if late is not None:
            time.sleep(late.seconds)
            raise _DropError
        return answer

    def _carry_out(
        self,
        service: str,
        action: str,
        request: Mapping[str, Any],
        stale: float,
        raw: tuple[str, str, Mapping[str, str], bytes],
    ) -> Answer:
        own = self.services.own(service, action)
        if own is not None:
            with self.world.lock:
                made = own(request, stale)
            if isinstance(made, bytes):
                return 200, _XML, made
            if service == "ec2":
                return 200, _XML, ec2_answer(action, made)
            if service in {"iam", "sts"}:
                return 200, _XML, query_answer(service, action, made)
            return 200, _JSON, json.dumps(made, default=str).encode()
        if service == "iam":
            name = str(request.get("InstanceProfileName", ""))
            if action == "GetInstanceProfile" and self.iam.age(name, self.world.timing.now()) < stale:
                raise AwsError("NoSuchEntity", f"Instance Profile {name} cannot be found.", 404)
            return self.iam.call(*raw)
        queue_action = self.queues.action(action) if service == "sqs" else None
        if queue_action is not None:
            return 200, _JSON, json.dumps(queue_action(request)).encode()
        raise AwsError("InvalidAction", f"The action {action} is not valid for this web service.")


def _service(headers: Mapping[str, str]) -> str:
    """From the scope of the signature."""
    return _scope(headers, 3) or "ec2"


def _scope(headers: Mapping[str, str], part: int) -> str:
    """Part of the scope of the signature: key, day, region, service; "" where it has none."""
    _, _, scope = headers.get("Authorization", "").partition("Credential=")
    parts = scope.partition(",")[0].split("/")
    return parts[part] if len(parts) > 4 else ""


def _read(
    service: str, method: str, path: str, headers: Mapping[str, str], body: bytes
) -> tuple[str, Callable[[], Mapping[str, Any]]]:
    """The action, and what reads its parameters; that raises AwsError."""
    target = headers.get("X-Amz-Target", "")
    if target:
        return target.rpartition(".")[2], lambda: json.loads(body or b"{}")
    if service in {"ec2", "iam", "sts"}:
        form = form_of(body)
        action = form.get("Action", "")
        return action, lambda: parse_form(service, action, form) if action in operations(service) else form
    parts = path.partition("?")[0].strip("/").split("/")
    if service == "eks" and parts[0] == "clusters" and parts[2:3] == ["node-groups"]:
        named = {"name": parts[1], **({"nodegroupName": parts[3]} if len(parts) > 3 else {})}
        action = _NODE_GROUPS[method, len(parts)]
        return action, lambda: {**(json.loads(body) if body else {}), **named}
    if service == "eks" and parts[0] == "clusters":
        if len(parts) > 1:
            return "DescribeCluster", lambda: {"name": parts[1]}
        return "ListClusters", dict
    if service == "arc-zonal-shift" and parts[0] == "managedresources":
        return "GetManagedResource", lambda: {"resourceIdentifier": unquote("/".join(parts[1:]))}
    return f"{method} {path}", dict


_NODE_GROUPS: Final = {
    ("GET", 3): "ListNodegroups",
    ("POST", 3): "CreateNodegroup",
    ("GET", 4): "DescribeNodegroup",
    ("POST", 5): "UpdateNodegroupConfig",
}
"""By method and length of the path."""


def _error_of(fault: Fault, service: str, action: str) -> AwsError:
    match fault.kind:
        case "throttled":
            if service == "ec2":
                return AwsError("RequestLimitExceeded", "Request limit exceeded.", 503)
            return AwsError("Throttling" if service in {"iam", "sts"} else "ThrottlingException", "Rate exceeded")
        case "500":
            return AwsError(
                "InternalError" if service == "ec2" else "InternalFailure", "An internal error has occurred", 500
            )
        case "denied":
            if service == "ec2":
                return denied(f"ec2:{action}", message=fault.message)
            code = "AccessDenied" if service in {"iam", "sts", "sqs"} else "AccessDeniedException"
            said = fault.message or f"User is not authorized to perform: {service}:{action}"
            return AwsError(code, said, 403 if service in {"iam", "sts"} else 400)
        case "not-found":
            usual = "NoSuchEntity" if service == "iam" else "InvalidInstanceID.NotFound"
            code = fault.code or _NOT_FOUND.get(action, usual)
            return AwsError(
                code, fault.message or "What the request names does not exist", 404 if service == "iam" else 400
            )
        case _:
            return AwsError(fault.code or "InvalidParameterValue", fault.message or "by script", fault.status)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that was killed is no news."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def _handler(emulator: "Emulator") -> Callable[..., BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            try:
                if self.path.startswith(ADMIN):
                    answer = emulator.admin.answer(self.path[len(ADMIN) :], body)
                else:
                    answer = emulator.answer(self.command, self.path, dict(self.headers.items()), body)
            except _DropError:
                self.close_connection = True
                with contextlib.suppress(OSError):
                    self.connection.shutdown(socket.SHUT_RDWR)
                return
            status, headers, content = answer
            lines = [f"HTTP/1.1 {status} -", f"Content-Length: {len(content)}"]
            lines += [
                f"{name}: {value}"
                for name, value in headers.items()
                if name.lower() not in {"content-length", "connection"}
            ]
            self.wfile.write("\r\n".join([*lines, "", ""]).encode() + content)

        do_GET = do_PUT = do_DELETE = do_PATCH = do_POST  # noqa: N815  (http.server looks for these names)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    return Handler


def end_with_parent() -> None:
    """End this process when whoever started it is gone: then its end of our standard input closes."""

    def wait() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=wait, name="ec2-parent", daemon=True).start()
