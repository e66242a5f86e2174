"""Where the API server is and how to prove who we are: `connect` gives an `ApiConnection`.

The official `kubernetes` package reads kubeconfig files and the in-cluster service account, runs exec plugins and
refreshes tokens. Importing it the ordinary way loads 1,100 generated modules: measured here (CPython 3.11, 36.0.3)
55 MB and 0.6 s of CPU, against 7 MB and 0.06 s for the three modules that we need. `_official` loads only those, under a
private copy of the package's name, and falls back to the ordinary import if a later release is laid out differently.
"""

import contextlib
import importlib
import importlib.util
import os
import shutil
import socket
import ssl
import sys
import tempfile
import threading
import types
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import urllib3
from urllib3.util import Timeout

from provisioner.kube.errors import ConfigError, ConnectionFailed, CredentialsError
from provisioner.kube.forwarding import Endpoint
from provisioner.kube.limits import TokenBucket
from provisioner.kube.sending import Permit, Sweeper, asking
from provisioner.support import logs
from provisioner.support.clock import Clock, SystemClock
from provisioner.values.message import Said
from provisioner.values.printable import listed

CONNECT_TIMEOUT_SECONDS = 5.0  # TCP, and each step of the TLS handshake
READ_TIMEOUT_SECONDS = 30.0  # of silence, from the last byte that came
TOTAL_TIMEOUT_SECONDS = 65.0  # of one try as a whole; the API server itself gives up after 60 s

_REFRESH_INTERVAL_SECONDS = 10.0  # a server that answers 401 to everything must not make us run a plugin in a loop
_IDLE_BESIDE = (
    32  # connections of watches that ended and of urgent requests, kept for the next ones; no limit on those in use
)
_MOST_NAMED: Final = 10
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

# A peer that vanished is noticed after 15 + 3 x 5 s although nothing is sent on a watch.
_SOCKET_OPTIONS: list[tuple[int, int, int]] = [
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
]
if sys.platform == "linux":
    _SOCKET_OPTIONS += [
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    ]

_log = logs.get_logger(__name__)


class HttpAnswer(Protocol):
    """What the server answered; urllib3's responses are such."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def data(self) -> bytes: ...


class WatchStream(Protocol):
    """An answer that is read while it comes."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def read(self, amt: int | None = None) -> bytes:
        """At most `amt` bytes of a short answer, as of a refusal."""
        ...

    def stream(self, amt: int | None = None) -> Iterator[bytes]:
        """Pieces as they come; with None, each as soon as it is there."""
        ...

    def shutdown(self) -> None:
        """Wake the thread that reads; may be called from another."""
        ...

    def close(self) -> None:
        """Give the connection up."""
        ...


class Api(Protocol):
    """What clients and reflectors need of a connection: the seam at which tests put a fake.

    Whoever implements it repeats the signature of `request` in full, so that mypy can compare them.
    """

    host: str
    limiter: TokenBucket

    def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        read_timeout: float = READ_TIMEOUT_SECONDS,
        total_timeout: float = TOTAL_TIMEOUT_SECONDS,
        urgent: bool = False,
        permit: Permit | None = None,
    ) -> HttpAnswer: ...

    def stream(self, path: str, *, read_timeout: float) -> WatchStream: ...

    def refresh(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class _Official:
    """The parts of the official package that are used."""

    config: Any  # kubernetes.config
    configuration: Any  # the class kubernetes.client.configuration.Configuration


@dataclass(frozen=True, slots=True)
class _Transport:
    """Two pools on one TLS context: requests, of which so many may be under way, and what never waits: streams and urgent ones."""

    requests: urllib3.HTTPConnectionPool
    beside: urllib3.HTTPConnectionPool


class ApiConnection:
    """A way to one API server, shared by every client and watch of this process; thread-safe.

    Attributes:
        host: base URL, without a trailing slash.
        limiter: client-side rate limit of requests (watches are not limited by it).
        pool_size: how many requests may be under way at once; more wait for a free connection.
    """

    def __init__(
        self, source: "_Source", *, limiter: TokenBucket, user_agent: str, pool_size: int, clock: Clock
    ) -> None:
        self._source = source
        self._clock = clock
        self._lock = threading.Lock()
        self._refreshed = clock.monotonic()
        self.limiter = limiter
        self.pool_size = pool_size
        self.user_agent = user_agent
        self._sweeper = Sweeper(clock)
        self._configuration = source.load()
        self._transport = self._connect(self._configuration)
        self.host: str = self._configuration.host

    def __repr__(self) -> str:
        return f"<Connection {self.host} from {self._source}>"

    @property
    def authority(self) -> bytes:
        """The file of certificates that the server is trusted by, byte by byte; empty where the system's are used."""
        found: bytes = self._configuration.authority
        return found

    @property
    def namespace(self) -> str:
        """The namespace of the kubeconfig's context, or of this pod; "default" where neither names one."""
        return self._source.namespace()

    @property
    def path_prefix(self) -> str:
        """The path of the host's URL, "" for most: some proxies serve a cluster below a path."""
        return urllib.parse.urlsplit(self.host).path.rstrip("/")

    def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        read_timeout: float = READ_TIMEOUT_SECONDS,
        total_timeout: float = TOTAL_TIMEOUT_SECONDS,
        urgent: bool = False,
        permit: Permit | None = None,
    ) -> HttpAnswer:
        """Send one request and read its answer whole, whatever its status; no retry.

        Args:
            method: HTTP verb.
            path: absolute path with query, below the server's own prefix.
            body: sent as it is.
            headers: beside authorization and user agent.
            read_timeout: seconds without a byte before giving up.
            total_timeout: seconds before giving up, the waits for a free connection and for the server included.
            urgent: do not wait for one of the `pool_size` connections, take one beside them.
            permit: asked when the connection stands and the first byte is about to go out, and again before the body; what it raises
                comes out here, and the request has not been carried out. When it ends, the answer is waited for no longer.

        Raises:
            ConnectionFailed: there was no answer.
        """
        pool = self._transport.beside if urgent else self._transport.requests
        return self._send(pool, method, path, body, headers, (read_timeout, total_timeout), permit, preload=True)

    def stream(self, path: str, *, read_timeout: float) -> WatchStream:
        """Open a GET whose answer is read piece by piece; the caller closes it. Its headers must come in time, its body has no end.

        Raises:
            ConnectionFailed: there was no answer.
        """
        timeouts = (read_timeout, TOTAL_TIMEOUT_SECONDS)
        return self._send(self._transport.beside, "GET", path, None, None, timeouts, None, preload=False)

    def refresh(self) -> bool:
        """Read credentials and authority again, after a 401 or a failed handshake; at most once in 10 s.

        Returns:
            Whether they were read, so that another try makes sense. Connections that are open stay as they are.
        """
        with self._lock:
            now = self._clock.monotonic()
            if now - self._refreshed < _REFRESH_INTERVAL_SECONDS:
                return False
            self._refreshed = now
            try:
                configuration = self._source.load()
                transport = self._connect(configuration)
            except ConfigError as error:
                _log.warning("Failed to reload credentials; keeping the previous ones", error=str(error))
                return False
            self._configuration, self._transport = configuration, transport
        return True

    def close(self) -> None:
        """Cut off every request that waits for its answer, streams that have begun apart, and close what waits for the next request."""
        self._sweeper.stop()
        self._transport.requests.close()
        self._transport.beside.close()

    def authorization(self) -> dict[str, str]:
        """The headers that say who we are; runs the refresh of tokens that are about to end. May be empty (certificates).

        Raises:
            ConnectionFailed: the plugin that gives the token failed.
        """
        try:
            settings: Mapping[str, Mapping[str, str]] = self._configuration.auth_settings()
        except Exception as error:
            raise ConnectionFailed(Said(f"cannot get a token: {error}")) from error
        return {setting["key"]: setting["value"] for setting in settings.values() if setting["value"]}

    def endpoint(self) -> Endpoint:
        """For connections that are no requests (`forwarding`).

        Raises:
            ConnectionFailed: the plugin that gives the token failed.
        """
        configuration = self._configuration
        tls: dict[str, Any] = {}
        if configuration.host.startswith("https:"):
            tls["context"] = configuration.ssl_context
            if configuration.tls_server_name:
                tls["server_hostname"] = configuration.tls_server_name
        proxy = configuration.proxy if configuration.proxy and not _bypasses_proxy(configuration) else ""
        headers = {"user-agent": self.user_agent, **self.authorization()}
        return Endpoint(configuration.host, tls, proxy or "", headers)

    def _send(
        self,
        pool: urllib3.HTTPConnectionPool,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str] | None,
        timeouts: tuple[float, float],
        permit: Permit | None,
        *,
        preload: bool,
    ) -> urllib3.HTTPResponse:
        sent = {"accept": "application/json", "user-agent": self.user_agent, **self.authorization(), **(headers or {})}
        read, total = timeouts
        with self._sweeper.attempt(total, permit) as attempt:
            try:
                response = pool.urlopen(
                    method,
                    self.path_prefix + path,
                    body=body,
                    headers=sent,
                    retries=False,
                    redirect=False,
                    timeout=Timeout(connect=min(CONNECT_TIMEOUT_SECONDS, total), read=min(read, total)),
                    pool_timeout=total,  # type: ignore[arg-type]  # any number will do
                    preload_content=preload,
                    decode_content=preload,
                )
            except urllib3.exceptions.HTTPError as error:
                if attempt.expired:
                    raise attempt.failure(f"{method} {path}", total) from error
                if isinstance(error, urllib3.exceptions.SSLError):
                    self.refresh()  # the authority may have been replaced under us, as in a pod of long life
                failed = connection_failed(error, f"{method} {path}")
                failed.maybe_applied = failed.maybe_applied or attempt.sent  # TLS may fail after the request, too
                raise failed from error
        if attempt.expired:  # headers that break off are no error to http.client
            response.close()
            raise attempt.failure(f"{method} {path}", total)
        assert isinstance(response, urllib3.HTTPResponse)  # noqa: S101  (the only kind that urlopen makes)
        return response

    def _connect(self, configuration: Any) -> _Transport:
        url = urllib.parse.urlsplit(configuration.host)
        options: dict[str, Any] = {"socket_options": _SOCKET_OPTIONS}
        if url.scheme == "https":
            options["ssl_context"] = configuration.ssl_context
            if not configuration.verify_ssl:
                options["cert_reqs"] = "CERT_NONE"
            if configuration.tls_server_name:
                options["server_hostname"] = options["assert_hostname"] = configuration.tls_server_name
        pools = []
        for size, block in ((self.pool_size, True), (_IDLE_BESIDE, False)):
            settings = {**options, "maxsize": size, "block": block}
            pools.append(asking(_pool(configuration, settings)))
        return _Transport(*pools)


def connect(
    kubeconfig: str | None = None,
    *,
    qps: float = 200,
    burst: int = 300,
    user_agent: str = "dovetail",
    pool_size: int = 16,
    clock: Clock | None = None,
    context: str = "",
) -> ApiConnection:
    """Find the API server and the credentials; nothing is sent yet.

    Args:
        kubeconfig: path of a kubeconfig file. None or "": the service account inside a cluster, else $KUBECONFIG, else ~/.kube/config.
        qps: requests per second over a longer time.
        burst: requests that may go at once.
        user_agent: what the server's audit log shows.
        pool_size: requests that may be under way at once.
        clock: for the rate limit.
        context: of the kubeconfig; "" is its current one.

    Raises:
        ConfigError: nothing usable was found; the sentence says where it looked.
    """
    clock = clock if clock is not None else SystemClock()
    limiter = TokenBucket(qps, burst, clock)
    return ApiConnection(
        _Source.find(kubeconfig, context), limiter=limiter, user_agent=user_agent, pool_size=pool_size, clock=clock
    )


def context_names(kubeconfig: str | None = None) -> list[str]:
    """The contexts of a kubeconfig, which is found as by `connect`.

    Raises:
        ConfigError: there is none.
    """
    return _Source.find(kubeconfig, "any").contexts()


def connection_failed(error: Exception, request: str) -> ConnectionFailed:
    """Our error for one of the HTTP library's; knows whether the request can have arrived."""
    never_sent = isinstance(
        error,
        urllib3.exceptions.NewConnectionError
        | urllib3.exceptions.ConnectTimeoutError
        | urllib3.exceptions.SSLError
        | urllib3.exceptions.ProxyError
        | urllib3.exceptions.EmptyPoolError,
    )
    return ConnectionFailed(_why(error), request, maybe_applied=not never_sent)


_WORDS: Final[tuple[tuple[type[Exception] | tuple[type[Exception], ...], str], ...]] = (
    (urllib3.exceptions.NameResolutionError, Said("the name of the server cannot be resolved")),
    (urllib3.exceptions.ConnectTimeoutError, Said("the server accepted no connection in time")),
    (urllib3.exceptions.ReadTimeoutError, Said("the server did not answer in time")),
    (urllib3.exceptions.EmptyPoolError, Said("no connection became free in time")),
    ((AttributeError, IndexError, KeyError, TypeError), Said("it is not a valid kubeconfig file")),
)
"""For errors whose own text names classes and objects of Python."""


def _why(error: BaseException) -> str:
    """What happened, in words: of an error that wraps others what the innermost one says that the system raised."""
    inner = error.__cause__ or error.__context__
    if type(error) is urllib3.exceptions.NewConnectionError and inner is not None:  # which is a ConnectTimeoutError
        return _why(inner)
    for kinds, text in _WORDS:
        if isinstance(error, kinds):
            return text
    if isinstance(error, urllib3.exceptions.HTTPError) and inner is not None:
        return _why(inner)
    if isinstance(error, ssl.SSLCertVerificationError):
        return Said(f"the certificate of the server is not trusted: {error.verify_message}")
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}{f': {error.filename}' if error.filename else ''}"
    return " ".join(str(error).split())


def _exec_plugin_gives_no_credentials(source: object, command: str, install_hint: str, *, missing: bool) -> str:
    fact = "is not installed" if missing else "did not return a token or a client certificate; run it to see why"
    return Said(
        f"{source} cannot be used: its exec plugin {command!r} {fact}{f'. {install_hint}' if install_hint else ''}"
    )


def _auth_provider_gives_no_token(source: object, provider: str) -> str:
    plugins = {
        "gcp": "install gke-gcloud-auth-plugin and run `gcloud container clusters get-credentials CLUSTER`",
        "azure": "install kubelogin and run `kubelogin convert-kubeconfig`",
    }
    remedy = plugins.get(provider, "log in again, or use an exec plugin")
    return Said(
        f"{source} cannot be used: its auth-provider {provider!r} has no valid token, and only a plugin can get one; "
        f"{remedy}"
    )


@dataclass(frozen=True, slots=True)
class _Source:
    """Where the credentials come from; `path` is None inside a cluster."""

    path: str | None
    context: str = ""

    def __str__(self) -> str:
        return self.path if self.path is not None else "the service account of this pod"

    @staticmethod
    def find(kubeconfig: str | None, context: str = "") -> "_Source":
        if kubeconfig:
            if not any(Path(path).is_file() for path in kubeconfig.split(os.pathsep)):
                raise ConfigError(
                    f"kubeconfig {kubeconfig!r} does not exist or is not a file; set --kubeconfig to the path of a "
                    "kubeconfig file"
                )
            return _Source(kubeconfig, context)
        if not context and os.environ.get("KUBERNETES_SERVICE_HOST") and (_SERVICE_ACCOUNT / "token").is_file():
            return _Source(None)
        named = os.environ.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
        if not any(Path(path).is_file() for path in named.split(os.pathsep)):
            raise ConfigError(
                f"no kubeconfig found: the process does not run in a pod and {named!r} is not a file; set "
                "--kubeconfig or $KUBECONFIG"
            )
        return _Source(named, context)

    def load(self) -> Any:
        """A Configuration of the official package, with TLS material read into `ssl_context`.

        Raises:
            ConfigError: the file is wrong or gives no credentials.
        """
        official = _official()
        configuration = official.configuration()
        # Key data of the kubeconfig passes through files, because OpenSSL reads keys from files only; they live for these lines.
        scratch = tempfile.mkdtemp(prefix="dovetail-kube-")
        try:
            if self.path is None:
                official.config.load_incluster_config(client_configuration=configuration)
            else:
                self._find_context()
                official.config.load_kube_config(
                    config_file=self.path,
                    context=self.context or None,
                    client_configuration=configuration,
                    persist_config=False,
                    temp_file_path=scratch,
                )
            configuration.authority = Path(configuration.ssl_ca_cert).read_bytes() if configuration.ssl_ca_cert else b""
            if configuration.host.startswith("https:"):
                if not configuration.api_key and not configuration.cert_file:
                    raise self._no_credentials()
                configuration.ssl_context = _read_tls(configuration)
        except ConfigError:
            raise
        except Exception as error:
            if "auth-provider" in self._user():  # what reads tokens of former providers fails in its own words
                raise self._no_credentials() from error
            raise ConfigError(f"{self} cannot be used: {_why(error)}") from error
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return configuration

    def namespace(self) -> str:
        """As of `ApiConnection.namespace`."""
        if self.path is None:
            file = _SERVICE_ACCOUNT / "namespace"
            return (file.read_text(encoding="utf-8").strip() if file.is_file() else "") or "default"
        context = self._context()
        return str(context.get("namespace") or "default")

    def contexts(self) -> list[str]:
        """Names of the contexts of the kubeconfig; none inside a cluster, or where it is damaged."""
        try:
            return sorted(str(one["name"]) for one in self._whole()["contexts"])
        except Exception:  # noqa: BLE001 - damage is told elsewhere
            return []

    def _find_context(self) -> None:
        """Say which contexts there are where the one that is meant is not; what is damaged is told elsewhere.

        Raises:
            ConfigError: the kubeconfig has other contexts only.
        """
        known = self.contexts()
        name = self.context or str(self._whole().get("current-context") or "") if known else ""
        if known and not name:
            raise ConfigError(f"{self} has no current context; set one with `kubectl config use-context`")
        if known and name not in known:
            raise ConfigError(f'{self} has no context "{name}"; its contexts are: {listed(known, _MOST_NAMED)}')

    def _whole(self) -> Any:
        return _official().config.kube_config.KubeConfigMerger(self.path).config.value

    def _context(self) -> Mapping[str, Any]:
        """What the kubeconfig says of its context; empty where it is damaged, which is told elsewhere."""
        try:
            whole = self._whole()
            name = self.context or whole["current-context"]
            found = next(one.value["context"] for one in whole["contexts"] if one["name"] == name)
        except Exception:  # noqa: BLE001 - likewise
            return {}
        return found if isinstance(found, dict) else {}

    def _no_credentials(self) -> ConfigError:
        """Why there are none, as far as the kubeconfig tells."""
        user = self._user()
        plugin, provider = user.get("exec"), user.get("auth-provider")
        if isinstance(provider, dict):
            return CredentialsError(_auth_provider_gives_no_token(self, str(provider.get("name", ""))))
        if isinstance(plugin, dict):
            name, hint = str(plugin.get("command", "")), " ".join(str(plugin.get("installHint") or "").split())
            missing = os.sep not in name and shutil.which(name) is None
            return CredentialsError(_exec_plugin_gives_no_credentials(self, name, hint, missing=missing))
        return ConfigError(f"{self} contains no usable credentials: no token, no client certificate and no exec plugin")

    def _user(self) -> Mapping[str, Any]:
        """What the kubeconfig says of the user of its context; empty where it is damaged, which is told elsewhere."""
        try:
            wanted = self._context()["user"]
            found = next(one.value["user"] for one in self._whole()["users"] if one["name"] == wanted)
        except Exception:  # noqa: BLE001 - only makes an error clearer
            return {}
        return found if isinstance(found, dict) else {}


def _read_tls(configuration: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    # Authorities of clusters are often older than RFC 5280's strict profile, which Python 3.13 turned on.
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return context


def _pool(configuration: Any, settings: dict[str, Any]) -> urllib3.HTTPConnectionPool:
    url = urllib.parse.urlsplit(configuration.host)
    if configuration.proxy and not _bypasses_proxy(configuration):
        manager = urllib3.ProxyManager(configuration.proxy, proxy_headers=configuration.proxy_headers, **settings)
        return manager.connection_from_host(url.hostname, url.port, url.scheme)
    kind = urllib3.HTTPSConnectionPool if url.scheme == "https" else urllib3.HTTPConnectionPool
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ConfigError(f"server {configuration.host!r} is not an http or https URL")
    return kind(url.hostname, url.port, **settings)


def _bypasses_proxy(configuration: Any) -> bool:
    utils = importlib.import_module(
        "requests.utils"
    )  # understands address ranges in NO_PROXY; the official package needs it too
    return bool(utils.should_bypass_proxies(configuration.host, no_proxy=configuration.no_proxy or ""))


_loaded: _Official | None = None
_load_lock = threading.Lock()


def _official() -> _Official:
    global _loaded  # noqa: PLW0603 - loaded once a process, under the lock
    with _load_lock:
        if _loaded is None:
            _loaded = _import_lean() or _import_whole()
        return _loaded


def _import_whole() -> _Official:
    package = importlib.import_module("kubernetes")
    return _Official(package.config, package.client.Configuration)


def _import_lean() -> _Official | None:
    """Load config and Configuration without the models; None when that does not work with this release."""
    if "kubernetes" in sys.modules:
        return None  # somebody paid for the whole package already
    spec = importlib.util.find_spec("kubernetes")
    if spec is None or not spec.submodule_search_locations:
        return None
    try:
        with _lean_package(list(spec.submodule_search_locations)) as client, _without_oauth():
            client.Configuration = importlib.import_module("kubernetes.client.configuration").Configuration
            client.ApiClient = _api_client
            config = importlib.import_module("kubernetes.config")
            return _Official(config, client.Configuration)
    except Exception as error:  # noqa: BLE001 - where the short import fails, the whole client is imported
        _log.info("Importing the official Kubernetes client as a whole", reason=str(error))
        return None


@contextlib.contextmanager
def _lean_package(folders: list[str]) -> Iterator[Any]:
    """`kubernetes.client` without its API and its models, which the image does not even have; only for as long as the block lasts."""
    try:
        with (
            _standing_in("kubernetes", folders),
            _standing_in("kubernetes.client", [f"{folder}/client" for folder in folders]) as client,
            _standing_in("kubernetes.client.models", []),
        ):
            yield client
    finally:
        # An ordinary `import kubernetes` later on must find nothing of this.
        for name in [name for name in sys.modules if name == "kubernetes" or name.startswith("kubernetes.")]:
            del sys.modules[name]


@contextlib.contextmanager
def _standing_in(name: str, folders: list[str]) -> Iterator[Any]:
    """A package of this name whose `__init__` does not run, for as long as the block lasts."""
    module = types.ModuleType(name)
    module.__path__ = folders
    sys.modules[name] = module
    yield module


@contextlib.contextmanager
def _without_oauth() -> Iterator[None]:
    """While the block lasts, what renews OIDC tokens (with `requests`: four megabytes) is imported in name only; who uses it gets the real."""
    if sys.modules.keys() & {"oauthlib", "requests_oauthlib"}:
        yield  # paid for already
        return
    session: Any = types.ModuleType("requests_oauthlib")
    session.OAuth2Session = _oauth2_session
    names = ("oauthlib", "oauthlib.oauth2", "requests_oauthlib")
    try:
        sys.modules.update(zip(names, (_Late(names[0]), _Late(names[1]), session), strict=True))
        yield
    finally:
        for name in names:
            sys.modules.pop(name, None)


class _Late(types.ModuleType):
    """Stands where kube_config expects `oauthlib`; an attribute that is asked for is the real module's."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # the import system looks whether this is a package
        importlib.import_module("oauthlib.oauth2")
        return getattr(importlib.import_module(self.__name__), name)


def _oauth2_session(*args: Any, **kwargs: Any) -> Any:
    return importlib.import_module("requests_oauthlib").OAuth2Session(*args, **kwargs)


def _api_client(*args: Any, **kwargs: Any) -> Any:
    """Stands where kube_config expects ApiClient, which only the renewal of OIDC tokens calls, and only to send a request."""
    with _load_lock:
        spec = importlib.util.find_spec("kubernetes")
        if "kubernetes" in sys.modules or spec is None:
            return importlib.import_module("kubernetes.client").ApiClient(*args, **kwargs)
        with _lean_package(list(spec.submodule_search_locations or ())):
            client = importlib.import_module("kubernetes.client.api_client")
    return client.ApiClient(*args, **kwargs)
