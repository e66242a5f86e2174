"""The serving certificate of N replicas, from the first mint to every renewal, without one failed call.

Each replica runs one `Rotation`. It follows two objects, the Secret (what should be served) and the webhook configuration
(whom the API servers trust), and everything it does follows from what they say, so any replica may die at any point:

1. **Mint** (leader). The Secret is missing, damaged or due: a new leaf of a new throw-away CA goes into it.
2. **Trust** (leader). The configuration's `caBundle` lacks the Secret's CA: it is added beside the old one.
3. **Serve** (each replica). A replica moves to the new leaf only after the bundle has held its CA for `settle` seconds,
   time for every API server's own watch. Where nobody trusts what is served now, it moves at once.
4. **Publish** (each replica). A record of its own (`certs.replicas`), renewed twice a minute, says which fingerprint is served.
5. **Prune** (leader). When every live replica has published the new fingerprint, and `overlap` seconds more have passed,
   the bundle is cut down to the Secret's CA.

A replica whose record runs out does not hold up step 5, and need not: one that cannot renew its record reports itself not ready
at half of the record's time, so it gets no calls any more when the others stop waiting for it.

The leader is the holder of the Lease `dovetail-certs`. With `names=None` the Secret belongs to somebody else (cert-manager):
it is never written, all other steps are the same. Without, a Secret that cert-manager issued is
renewed by cert-manager, and taken over only once it cannot be served any more. A configuration that cert-manager's cainjector looks after is not touched.
With `inject=False` nobody's configuration is: then steps 2, 4 and 5 are somebody else's, and with both nothing is written at all.

A ValidatingWebhookConfiguration of the same name is given the bundle of the mutating one at every step, and decides nothing: where it
cannot be read or written, pods are stamped all the same. The same goes for definitions with a conversion webhook (`certs.definitions`).
"""

import random
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from certs.authority import CertificateError
from certs.definitions import INJECTED_CA_BUNDLE, DefinitionInjector
from certs.injection import Configuration, inject, merge, trusted_by_all, trusted_by_any, trusts
from certs.replicas import Records, Replica
from certs.serving import write_atomically
from certs.store import (
    ANOTHER_WRITER_WAS_FASTER,
    LEAF_DAYS,
    Material,
    SecretNames,
    SecretStore,
    fault,
    is_kept_by_cert_manager,
    mint,
    renew_at,
)
from provisioner.apis.core import MutatingWebhookConfiguration, Namespace, Secret
from provisioner.apis.meta import ObjectMeta
from provisioner.kube.client import Client
from provisioner.kube.config import ApiConnection
from provisioner.kube.errors import AlreadyExists, ApiError, Conflict, Invalid
from provisioner.kube.lease import Fence, LeaderElector, LeaseTerm, LostLease
from provisioner.kube.resources import MUTATINGWEBHOOKS, NAMESPACES, SECRETS, VALIDATINGWEBHOOKS, Resource
from provisioner.kube.watch import Reflector, trouble
from provisioner.support import logs
from provisioner.support.clock import Clock
from provisioner.support.poller import Poller

LEADER_LEASE = "dovetail-certs"
CAINJECTOR_PREFIX = "cert-manager.io/inject-"
SERVING_FILE = "tls.pem"
STAND_AGAIN_SECONDS = 5.0  # after a term that was lost
RETRY_SECONDS = 5.0

_log = logs.get_logger(__name__)


@dataclass(frozen=True)
class RotationSettings:
    """What is kept, for whom, and how patiently.

    Attributes:
        namespace: of the Secret and of all Leases.
        configuration: name of the MutatingWebhookConfiguration, and of the ValidatingWebhookConfiguration where there is one.
        names: what the certificate must be valid for; None: the Secret is somebody else's and is only read.
        inject: False: the `caBundle` is somebody else's and is only read.
        register: the documents of the two configurations, where this program creates them (outside of a cluster); they are
            applied at the start and whenever one is gone, and the namespace is created with them.
        definitions: names of the CustomResourceDefinitions whose conversion gets the bundle too.
        karpenter_namespace: where Karpenter runs, if that is unusual; while it does, no definition gets the bundle.
        leaf_days: lifetime of a leaf.
        settle: seconds between "the bundle holds the new CA" and serving its leaf.
        overlap: seconds between "all replicas serve the new leaf" and the end of trust in the old CA.
        lease_seconds: lifetime of a replica's record; it is renewed at a quarter of that.
    """

    namespace: str
    secret: str
    configuration: str
    names: SecretNames | None
    inject: bool = True
    register: tuple[Mapping[str, Any], ...] = ()
    definitions: tuple[str, ...] = ()
    karpenter_namespace: str = ""
    leaf_days: int = LEAF_DAYS
    settle: float = 5.0
    overlap: float = 60.0
    lease_seconds: int = 120

    @property
    def writes(self) -> bool:
        """Whether anything is written, so that there has to be a leader."""
        return self.names is not None or self.inject


# --- decisions, pure ------------------------------------------------------------------------------------------------


def reason_to_mint(secret: Secret | None, names: SecretNames, now: datetime) -> str:
    """Why new material is needed, as a sentence, or "" while the Secret is good."""
    if secret is None:
        return "the Secret does not exist"
    kept = is_kept_by_cert_manager(secret)
    try:
        material = Material.of_secret(secret)
    except CertificateError as error:
        return str(error)
    if problem := fault(material, None if kept else names, now):
        return problem
    if kept:
        return ""
    due = renew_at(material)
    return f"it was due at {due.isoformat()}" if now >= due else ""


def may_serve(
    served: Material | None,
    wanted: Material,
    configuration: MutatingWebhookConfiguration | None,
    trusted_for: float,
    settle: float,
) -> bool:
    """Whether a replica should move to `wanted` now.

    Args:
        served: what it serves; None for nothing usable.
        wanted: what the Secret holds, already found faultless.
        configuration: as it is now; None where there is none, so nobody calls.
        trusted_for: seconds since the bundle of every webhook was first seen to hold the wanted CA.
        settle: how long that must be.
    """
    if served is not None and served.fingerprint == wanted.fingerprint:
        return False
    if served is None or configuration is None or not wanted.ca_pem:
        return True
    if not trusts(trusted_by_any(configuration), served.ca_pem):
        return True  # no call can succeed with what is served now
    return trusts(trusted_by_all(configuration), wanted.ca_pem) and trusted_for >= settle


def wanted_bundle(
    current: Material,
    configuration: Configuration,
    served: Material | None,
    *,
    everyone_moved: bool,
) -> bytes:
    """The bundle that the configuration should hold.

    Args:
        current: what the Secret holds.
        configuration: as it is now: it is the record of the CAs that may still be in use.
        served: what this replica serves; its CA survives a bundle that somebody emptied.
        everyone_moved: every live replica serves `current`, for long enough.

    Returns:
        The Secret's CA alone, or beside all those of before; empty where the Secret names no CA.
    """
    if not current.ca_pem:
        return b""
    if everyone_moved:
        return merge([current.ca_pem])
    return merge([current.ca_pem, trusted_by_any(configuration), served.ca_pem if served else b""])


def reason_not_trusted(served: Material, configuration: MutatingWebhookConfiguration | None) -> str:
    """Why a call to this replica would fail, as a sentence; "" where it would not, or where others keep the bundle.

    Others may keep a bundle that leads to our CA by a chain; ours holds the very CA.
    """
    if configuration is None or not served.ca_pem or _is_injected_by_others(configuration):
        return ""
    if trusts(trusted_by_all(configuration), served.ca_pem):
        return ""
    return (
        f"the caBundle of MutatingWebhookConfiguration {configuration.metadata.name} does not contain the CA of the certificate"
        " that this replica serves"
    )


def lagging(replicas: Iterable[Replica], fingerprint: str, own: str) -> tuple[str, ...]:
    """The names of live replicas that do not serve this fingerprint, sorted; `own` lags until its record is seen."""
    live = {replica.name: replica.fingerprint for replica in replicas if replica.live}
    return tuple(sorted({own} - live.keys() | {name for name, serves in live.items() if serves != fingerprint}))


# --- the loop -------------------------------------------------------------------------------------------------------


class Rotation:
    """Keeps `<directory>/tls.pem` what this replica should serve, and takes its part in renewals.

    Args:
        client: for writes and the list of replicas.
        directory: where the serving file goes; private to this replica (an emptyDir), kept over restarts of the container.
        identity: unique among the live replicas, the same after a restart (a pod's name).
    """

    def __init__(
        self,
        client: Client,
        connection: ApiConnection,
        clock: Clock,
        settings: RotationSettings,
        directory: Path,
        identity: str,
    ) -> None:
        self._client, self._clock, self._settings = client, clock, settings
        self.path = directory / SERVING_FILE
        self._records = Records(client, clock, settings.namespace, identity, settings.lease_seconds)
        self._term = LeaseTerm()
        self._leading = leading = client.under(
            self._term
        )  # what only the leader writes; each replica's own record is not of that kind
        self._store = SecretStore(leading, settings.namespace, settings.secret)
        self._definitions = DefinitionInjector(
            leading, clock, settings.definitions, settings.namespace, settings.karpenter_namespace
        )
        self._poller = Poller("certs", self.tick, RETRY_SECONDS)
        self._stopping = threading.Event()
        self._leader = threading.Thread(target=self._lead, name="certs-leader", daemon=True)
        self._elector = LeaderElector(
            client,
            LEADER_LEASE,
            settings.namespace,
            identity,
            clock,
            lease_duration=30,
            renew_deadline=20,
            retry_period=5,
        )
        chance = random.Random()

        def changed(*_: object) -> None:
            self._poller.wake()  # and it looks at everything

        self._secrets = Reflector(
            connection, SECRETS, changed=changed, listed=self._poller.wake, namespace=settings.namespace,
            field_selector=f"metadata.name={settings.secret}", clock=clock, rng=chance,
        )  # fmt: skip
        self._configurations = Reflector(
            connection, MUTATINGWEBHOOKS, changed=changed, listed=self._poller.wake,
            field_selector=f"metadata.name={settings.configuration}", clock=clock, rng=chance,
        )  # fmt: skip
        self._followers = Reflector(
            connection, VALIDATINGWEBHOOKS, changed=changed, listed=self._poller.wake,
            field_selector=f"metadata.name={settings.configuration}", clock=clock, rng=chance,
        )  # fmt: skip
        self._served = _usable(self.path, clock.now())
        self._delivered = False  # whether what is served has been held against the Secret
        self._registered = False
        self._trusted: tuple[str, float] = ("", 0.0)
        self._moved: tuple[str, float] = ("", 0.0)
        self._published: tuple[str, float] | None = None
        self._replicas: list[Replica] | None = None  # as of this round; None where it could not be read
        self._problems: dict[str, str] = {}

    # Life

    @staticmethod
    def prepare(directory: Path, names: SecretNames | None, secret: str, now: datetime) -> None:
        """Makes sure that there is a serving file before a server opens its port; no network, no thread.

        What the container served before its restart is left in place. Otherwise a leaf that nobody trusts is put there,
        so that the server can start: calls fail until the Secret has come, and the pods are admitted unstamped.

        Raises:
            OSError: the directory cannot be written.
            CertificateError: no certificate can be made for these names.
        """
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / SERVING_FILE
        if _usable(path, now) is None:
            material = mint(names or SecretNames(dns=(secret,)), now, days=1)
            write_atomically(path, replace(material, ca_pem=b"").pem())  # without its CA nobody can come to trust it

    def start(self) -> None:
        """Start the watches, the election and the loop; returns at once. Call after a fork, never before."""
        self._secrets.start()
        self._configurations.start()
        self._followers.start()
        self._poller.start()
        if self._settings.writes:
            self._leader.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Stop everything, give up the Leases; at most about `timeout` seconds."""
        self._stopping.set()
        self._elector.stop()
        deadline = self._clock.monotonic() + timeout
        for end in (self._poller.stop, self._secrets.stop, self._configurations.stop, self._followers.stop):
            end(max(0.0, deadline - self._clock.monotonic()))
        if self._leader.is_alive():  # it gives the Lease back on its way out
            self._leader.join(max(0.0, deadline - self._clock.monotonic()))
        if not self._settings.inject:
            return
        try:
            self._records.withdraw()
        except ApiError as error:
            _log.debug("Letting this replica's record expire", error=str(error))

    def problem(self) -> str:
        """Why this replica should get no calls; "" when it should."""
        reasons = []
        served = self._served
        if served is None or not self._delivered:
            reasons.append("certificate: the Secret does not exist yet")
            watches = (self._secrets, self._configurations)
            blocked = [trouble(watch.error, watch.resource) for watch in watches if watch.error is not None]
            reasons += [f"certificate: {error}" for error in blocked]
        else:
            problem = fault(served, self._asked(), self._clock.now())
            problem = problem or reason_not_trusted(served, self._configuration() if self._settings.inject else None)
            reasons += [f"certificate: {problem}"] if problem else []
        published = self._published
        late = published is None or self._clock.monotonic() - published[1] > self._settings.lease_seconds / 2
        if late and self._settings.inject:
            reasons.append("certificate: this replica's record could not be renewed")
        return "; ".join(reasons + [f"certificate: {text}" for text in tuple(self._problems.values()) if reasons])

    @property
    def served(self) -> Material | None:
        """What is served; None before the first delivery."""
        return self._served

    @property
    def leads(self) -> bool:
        """Whether this replica is the one that mints and injects."""
        return self._term.left() > 0

    # Threads

    def _lead(self) -> None:
        while not self._stopping.is_set():
            try:
                self._elector.run(self._on_started)
            except Exception:  # noqa: BLE001 - the thread outlives a pass that fails
                _log.exception("Leader election failed; retrying")
            self._term.end()
            self._stopping.wait(STAND_AGAIN_SECONDS)

    def _on_started(self, fence: Fence) -> None:
        self._term.begin(fence)
        self._poller.wake()

    def tick(self) -> float:
        """One round over all steps; seconds until the next is due, if nothing wakes the loop before.

        A step that fails is logged and tried again in the next round; it never keeps the others from running.
        """
        if not self._registered and self._settings.register:
            self._step("register", self._register)
        if not (self._secrets.synced.is_set() and self._configurations.synced.is_set()):
            return 0.2
        if self.leads:
            self._step("mint", self._mint)
        wanted, configuration = self._wanted(), self._configuration()  # one look for all that follows
        self._step("serve", lambda: self._serve(wanted, configuration))
        if self._settings.inject:
            self._step("publish", self._publish)
        if self.leads and self._settings.inject:
            self._replicas = None
            self._step("replicas", self._look_around)
            self._step("inject", lambda: self._inject(wanted, configuration))
            self._step("inject into the validating configuration", lambda: self._follow(wanted, configuration))
            self._step("inject into the definitions", lambda: self._define(wanted, configuration))
        return self._pause(wanted, configuration)

    def _step(self, name: str, run: Callable[[], None]) -> None:
        try:
            run()
        except (Conflict, Invalid) as error:
            _log.info(ANOTHER_WRITER_WAS_FASTER, step=name, error=str(error))
            self._problems[name] = str(error)
        except (ApiError, OSError, CertificateError) as error:
            if self._problems.get(name) != str(error):
                _log.warning("A step of the certificate rotation failed; retrying", step=name, error=str(error))
            self._problems[name] = str(error)
        except LostLease:
            self._problems.pop(name, None)
        else:
            self._problems.pop(name, None)

    def _pause(self, wanted: Material | None, configuration: MutatingWebhookConfiguration | None) -> float:
        settings = self._settings
        pause = settings.lease_seconds / 4
        if self._problems:
            pause = min(pause, 5.0)
        if self._overlapping(wanted, configuration):
            pause = min(pause, max(0.1, settings.settle / 4), 2.0)
        return pause

    def _overlapping(self, wanted: Material | None, configuration: MutatingWebhookConfiguration | None) -> bool:
        """Whether a move is under way: the bundle holds more than one CA, or ours is not the Secret's leaf."""
        if wanted is None:
            return False
        if self._served is None or self._served.fingerprint != wanted.fingerprint:
            return True
        return configuration is not None and trusted_by_any(configuration).count(b"BEGIN CERTIFICATE") > 1

    # What is known

    def _secret(self) -> Secret | None:
        return self._secrets.store.get(f"{self._settings.namespace}/{self._settings.secret}")

    def _configuration(self) -> MutatingWebhookConfiguration | None:
        return self._configurations.store.get(self._settings.configuration)

    def _wanted(self) -> Material | None:
        """The Secret's material where it can be served, else None."""
        secret = self._secret()
        if secret is None:
            return None
        try:
            material = Material.of_secret(secret)
        except CertificateError:
            return None
        return None if fault(material, self._asked(), self._clock.now()) else material

    def _asked(self) -> SecretNames | None:
        """What the Secret's certificate must be valid for; None where somebody else issues it."""
        secret = self._secret()
        return None if secret is not None and is_kept_by_cert_manager(secret) else self._settings.names

    # Steps

    def _register(self) -> None:
        namespace = Namespace(metadata=ObjectMeta(name=self._settings.namespace))
        try:
            self._client.create(NAMESPACES, namespace)
        except AlreadyExists:
            pass
        for document in self._settings.register:
            validating = document["kind"] == VALIDATINGWEBHOOKS.kind
            resource: Resource[Any] = VALIDATINGWEBHOOKS if validating else MUTATINGWEBHOOKS
            self._client.apply(resource, self._settings.configuration, document, "dovetail-webhook")
        self._registered = True
        _log.info("Registered the webhook", configuration=self._settings.configuration)

    def _mint(self) -> None:
        names = self._settings.names
        if names is None:
            return
        now = self._clock.now()
        if not reason_to_mint(self._secret(), names, now):
            return
        secret = self._store.get()  # the cache may be behind our own last write
        reason = reason_to_mint(secret, names, now)
        if not reason:
            return
        material = mint(names, now, self._settings.leaf_days)
        self._term.check()
        if secret is None:
            self._store.create_or_adopt(material)
        else:
            self._store.replace(secret, material)
        _log.info("Issued a certificate", reason=reason, fingerprint=material.fingerprint)

    def _serve(self, wanted: Material | None, configuration: MutatingWebhookConfiguration | None) -> None:
        if wanted is None:
            secret = self._secret()
            if secret is not None and self._asked() is None:
                problem = fault(Material.of_secret(secret), None, self._clock.now())
                raise CertificateError(f"Secret {self._settings.secret} cannot be served: {problem}")
            return
        served = self._served
        if served is not None and fault(served, self._asked(), self._clock.now()):
            served = None
        if may_serve(served, wanted, configuration, self._trusted_for(wanted, configuration), self._settings.settle):
            write_atomically(self.path, wanted.pem())
            self._served = wanted
            _log.info("Serving a new certificate", fingerprint=wanted.fingerprint)
        self._delivered = True

    def _trusted_for(self, wanted: Material, configuration: MutatingWebhookConfiguration | None) -> float:
        now = self._clock.monotonic()
        if configuration is None or not trusts(trusted_by_all(configuration), wanted.ca_pem):
            self._trusted = ("", now)
            return 0.0
        if self._trusted[0] != wanted.fingerprint:
            self._trusted = (wanted.fingerprint, now)
        return now - self._trusted[1]

    def _publish(self) -> None:
        now = self._clock.monotonic()
        fingerprint = self._served.fingerprint if self._served is not None else ""
        published = self._published
        due = published is None or now - published[1] >= self._settings.lease_seconds / 4 - 1
        if not due and published is not None and published[0] == fingerprint:
            return
        self._records.publish(fingerprint)
        self._published = (fingerprint, now)

    def _inject(self, wanted: Material | None, configuration: MutatingWebhookConfiguration | None) -> None:
        if configuration is None and self._settings.register:
            self._term.check()
            self._register()  # somebody deleted it; the watch brings it back here
            return
        self._give(wanted, configuration, configuration)

    def _follow(self, wanted: Material | None, configuration: MutatingWebhookConfiguration | None) -> None:
        """Gives the validating configuration what the mutating one gets; by itself where there is no such."""
        if not self._followers.synced.is_set():
            return
        follower = self._followers.store.get(self._settings.configuration)
        if follower is None and len(self._settings.register) > 1 and self._registered:
            self._term.check()
            self._register()
            return
        self._give(wanted, configuration or follower, follower)

    def _define(self, wanted: Material | None, configuration: MutatingWebhookConfiguration | None) -> None:
        """Gives the definitions what the configuration has, or should have."""
        if wanted is None or configuration is None or not self._settings.definitions:
            return
        if bundle := self._bundle(wanted, configuration):
            self._definitions.inject(bundle)

    def _give(self, wanted: Material | None, leader: Configuration | None, to: Configuration | None) -> None:
        """Injects the bundle that `leader` should hold into one configuration."""
        if leader is None or to is None or wanted is None or _is_injected_by_others(to):
            return
        bundle = self._bundle(wanted, leader)
        if bundle and inject(self._leading, to, bundle):
            _log.info(INJECTED_CA_BUNDLE, kind=to.kind, certificates=bundle.count(b"BEGIN CERTIFICATE"))

    def _bundle(self, wanted: Material, leader: Configuration) -> bytes:
        """What `leader` should hold now; empty where the Secret names no CA. Only the leader may ask, to write it."""
        self._term.check()
        moved = self._everyone_moved(wanted, leader)
        return wanted_bundle(wanted, leader, self._served, everyone_moved=moved)

    def _look_around(self) -> None:
        """Also while nothing is to be pruned: who lives shows by renewals that are seen."""
        self._replicas = self._records.replicas()

    def _everyone_moved(self, wanted: Material, configuration: Configuration) -> bool:
        if merge([wanted.ca_pem]) == trusted_by_any(configuration):
            return True  # nothing to prune, so nobody is waited for
        now = self._clock.monotonic()
        if self._replicas is None or lagging(self._replicas, wanted.fingerprint, self._records.own):
            self._moved = ("", now)
            return False
        if self._moved[0] != wanted.fingerprint:
            self._moved = (wanted.fingerprint, now)
        return now - self._moved[1] >= self._settings.overlap


def _usable(path: Path, now: datetime) -> Material | None:
    """What a serving file holds, where it can be served."""
    try:
        found = Material.parse(path.read_bytes())
    except (OSError, CertificateError):
        return None
    return None if fault(found, None, now) else found


def _is_injected_by_others(configuration: Configuration) -> bool:
    return any(key.startswith(CAINJECTOR_PREFIX) for key in configuration.metadata.annotations)
