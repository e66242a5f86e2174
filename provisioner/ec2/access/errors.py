"""What an error of AWS means for us: how to go on, what is in short supply, which reason a condition gets. Pure.

`classify` reads a code and a message (of an exception, or of one entry of CreateFleet's `Errors`) into a `Failure`; `classify_exception`
takes whatever botocore raised; `launch_error` makes of the failures of one launch the error of `cloudprovider.errors` that its claim gets.

Source: spec/karpenter-aws.md 5.6: same codes and same reasons; codes of single request parameters are those of
https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html, those of prefixes are quoted in
https://github.com/cilium/cilium/pull/31016 and https://docs.aws.amazon.com/eks/latest/best-practices/prefix-mode-linux.html.
Differs: quotas close everything that they count (a vCPU quota all types of its class), not one offering after the other; a
    failure that may have had its effect is told from one that cannot have had any.
"""

import enum
import functools
import re
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from botocore import exceptions as botocore_errors

from provisioner.cloudprovider.errors import CloudError, CreateError, InsufficientCapacityError

#: What botocore raises: AWS answered with an error, or did not answer.
BOTOCORE_ERRORS: Final = (botocore_errors.BotoCoreError, botocore_errors.ClientError)


class FailureKind(enum.Enum):
    """What sort of failure it is."""

    SHORTAGE = "shortage"
    """EC2 has no such instance there now, or will not sell it."""
    ADDRESSES = "addresses"
    """The subnet has no free addresses."""
    QUOTA = "quota"
    """An account limit is reached."""
    THROTTLED = "throttled"
    """Too many calls; it had no effect."""
    SERVER = "server"
    """AWS failed; it may have had its effect."""
    CONNECTION = "connection"
    """No answer; it may have had its effect."""
    DENIED = "denied"
    """The permission is missing."""
    CREDENTIALS = "credentials"
    """We have no credentials, or they are not valid (any more)."""
    NOT_FOUND = "not found"
    """What the call names does not exist (any more)."""
    EXISTS = "exists"
    """What the call makes is there already."""
    MISMATCH = "mismatch"
    """The client token was used for another request."""
    DRY_RUN = "dry run"
    """No failure: the dry run would have succeeded."""
    INVALID = "invalid"
    """The request is wrong; the same one will always fail."""
    UNKNOWN = "unknown"
    """None of these."""


class FailureScope(enum.Enum):
    """What a failure says is not to be had now."""

    NOTHING = "nothing"
    OFFERING = "offering"
    """This type in this zone and capacity type, in this placement group."""
    SUBNET = "subnet"
    """The subnet that was tried."""
    PREFIXES = "prefixes of the subnet"
    """The subnet that was tried, for instances with address prefixes."""
    ZONE_OF_GROUP = "zone of the placement group"
    """Every type in this zone, for this placement group."""
    CAPACITY_TYPE = "capacity type"
    """Every type everywhere of this capacity type."""
    VCPU_QUOTA = "vCPU quota"
    """Every type that the same vCPU quota counts, in this capacity type: `quota_class`."""
    FLEET_QUOTA = "fleet quota"
    """All launches: it says nothing about instances."""
    RESERVATION = "reservation"
    """The reservation is used up."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure, judged.

    Attributes:
        kind: what sort it is.
        reason: for conditions and the metric of launch failures; Karpenter's words.
        code: AWS's code, "" where there is none.
        message: AWS's message.
        scope: what is not to be had now.
        advice: what a person should do, one sentence; "" where waiting is all.
        maybe_done: whether the call may have had its effect all the same, by this attempt or by one before it.
    """

    kind: FailureKind
    reason: str
    code: str
    message: str
    scope: FailureScope = FailureScope.NOTHING
    advice: str = ""
    maybe_done: bool = False

    @property
    def unfulfillable(self) -> bool:
        """Whether another offering may do: the failures that make up an insufficient capacity."""
        return self.scope is not FailureScope.NOTHING

    def __str__(self) -> str:
        """For people: without what differs from call to call, so that the same failure reads the same."""
        message = _EVERY_CALL_ANEW.sub("", self.message)
        said = f"{self.code}: {message}" if self.code else message
        return f"{said} ({self.advice})" if self.advice else said


_EVERY_CALL_ANEW: Final = re.compile(
    r"\s*Encoded authorization failure message: \S+|,?\s*\(?request ?id: ?[0-9a-f-]{36}\)?", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class _Rule:
    """One row of the table; the first that matches decides."""

    matches: Callable[[str, str], bool]
    kind: FailureKind
    reason: str
    scope: FailureScope = FailureScope.NOTHING
    advice: str = ""
    maybe_done: bool = False


def _code(*codes: str) -> Callable[[str, str], bool]:
    known = frozenset(codes)
    return lambda code, _: code in known


def _starts(*prefixes: str) -> Callable[[str, str], bool]:
    return lambda code, _: code.startswith(prefixes)


def _says(*parts: str) -> Callable[[str, str], bool]:
    lowered = tuple(part.lower() for part in parts)
    return lambda code, message: all(part in f"{code}: {message}".lower() for part in lowered)


def _any(*matchers: Callable[[str, str], bool]) -> Callable[[str, str], bool]:
    return lambda code, message: any(matcher(code, message) for matcher in matchers)


def _all(*matchers: Callable[[str, str], bool]) -> Callable[[str, str], bool]:
    return lambda code, message: all(matcher(code, message) for matcher in matchers)


MAYBE_DONE: Final = "DovetailMaybeDone"
"""Set in the metadata of an answer when an earlier attempt of the same call may have had its effect; see `note_maybe_done`."""

UNAUTHORIZED: Final = "Unauthorized"
LAUNCH_FAILED: Final = "LaunchFailed"
LAUNCH_TEMPLATE_NOT_FOUND: Final = "LaunchTemplateNotFound"
RESERVATION_EXCEEDED: Final = "ReservationCapacityExceeded"
LAUNCH_TEMPLATE_QUOTA: Final = "LaunchTemplateQuotaExceeded"
SPOT_ROLE_FAILED: Final = "SpotSLRCreationFailed"
_NO_ADDRESSES: Final = "InsufficientFreeAddressesInSubnet"

_DENIED: Final = _any(
    _starts("UnauthorizedOperation", "AccessDenied", "AuthFailure", "NotAuthorized", "Client.UnauthorizedOperation"),
    _says("UnauthorizedOperation"),
    _says("AccessDenied"),
    _says("AuthFailure"),
)
_THROTTLE_CODES: Final = (
    *("RequestLimitExceeded", "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled"),
    *("RequestThrottledException", "TooManyRequestsException", "SlowDown", "BandwidthLimitExceeded"),
    *("LimitExceededException", "PriorRequestNotComplete", "EC2ThrottledException", "Client.RequestLimitExceeded"),
)
THROTTLES: Final = frozenset(_THROTTLE_CODES)
"""Codes that mean: too many calls."""


def is_denied(code: str) -> bool:
    """Whether an error code says that AWS does not permit the call."""
    return _DENIED(code, "")


_RULES: Final[tuple[_Rule, ...]] = (
    _Rule(_code("DryRunOperation"), FailureKind.DRY_RUN, "DryRunOperation"),
    _Rule(
        _any(
            _code("AuthFailure.ServiceLinkedRoleCreationNotPermitted"), _says("ServiceLinkedRoleCreationNotPermitted")
        ),
        FailureKind.DENIED,
        SPOT_ROLE_FAILED,
        scope=FailureScope.CAPACITY_TYPE,
        advice="create the service-linked role, once per account: aws iam create-service-linked-role "
        "--aws-service-name spot.amazonaws.com",
    ),
    _Rule(
        _any(
            _code("ExpiredToken", "ExpiredTokenException", "RequestExpired", "InvalidClientTokenId"),
            _code("UnrecognizedClientException", "SignatureDoesNotMatch", "InvalidSignatureException"),
            _code("IncompleteSignature", "MissingAuthenticationToken", "OptInRequired", "InvalidAccessKeyId"),
            _says("AuthFailure", "not able to validate the provided access credentials"),
        ),
        FailureKind.CREDENTIALS,
        UNAUTHORIZED,
        advice="check the role, the credentials and the clock of the provisioner",
    ),
    _Rule(
        _says("Not authorized for images"),
        FailureKind.DENIED,
        "AMIAuthorizationFailure",
        advice="share the image with this account and allow this account to use the key that encrypts its snapshots",
    ),
    _Rule(
        _all(_DENIED, _says("explicit deny", "permissions boundary")),
        FailureKind.DENIED,
        UNAUTHORIZED,
        advice="the permissions boundary of the controller role denies the call; change the boundary, because a policy alone is not sufficient",
    ),
    _Rule(
        _all(_DENIED, _any(_says("explicit deny", "service control policy"), _says("service control policy"))),
        FailureKind.DENIED,
        UNAUTHORIZED,
        advice="a service control policy of the organization denies the call; contact the administrator of the organization",
    ),
    _Rule(
        _all(_DENIED, _says("permissions boundary")),
        FailureKind.DENIED,
        UNAUTHORIZED,
        advice="the permissions boundary of the controller role does not allow the call; add the action to the boundary",
    ),
    _Rule(
        _DENIED,
        FailureKind.DENIED,
        UNAUTHORIZED,
        advice="add the permission to the controller role; `dovetail aws check` lists missing permissions",
    ),
    _Rule(
        _says("InvalidParameter", "belong to different networks"),
        FailureKind.INVALID,
        "SecurityGroupSubnetVPCMismatch",
        advice="the security groups and subnets of the EC2NodeClass must belong to the same VPC",
    ),
    _Rule(
        _any(_says("iamInstanceProfile.name is invalid"), _says("Invalid IAM Instance Profile name")),
        FailureKind.INVALID,
        "InstanceProfileNameInvalid",  # a profile that was just made takes some seconds to be known everywhere
        advice="check that the instance profile exists; a new instance profile becomes usable after some seconds",
    ),
    _Rule(
        _any(
            _starts("InvalidLaunchTemplateName.NotFound", "InvalidLaunchTemplateId.NotFound"),
            _says("InvalidLaunchTemplateName.NotFoundException"),
            _says("InvalidLaunchTemplateId.NotFound"),
        ),
        FailureKind.NOT_FOUND,
        LAUNCH_TEMPLATE_NOT_FOUND,
    ),
    _Rule(
        _says("User data is limited to"),
        FailureKind.INVALID,
        "UserDataSizeLimitExceeded",
        advice="shorten spec.userData; the merged user data must not exceed 16384 bytes",
    ),
    _Rule(
        _starts("InvalidUserData"),
        FailureKind.INVALID,
        "InvalidUserData",
        advice="EC2 cannot read the user data; check spec.userData of the EC2NodeClass",
    ),
    _Rule(
        _says("InvalidAMIID.Malformed"),
        FailureKind.INVALID,
        "InvalidAMIID",
        advice="check the image IDs in spec.amiSelectorTerms of the EC2NodeClass",
    ),
    _Rule(
        _any(_starts("InvalidAMIID.NotFound", "InvalidAMIID.Unavailable"), _says("InvalidAMIID.NotFound")),
        FailureKind.NOT_FOUND,
        "AMINotFound",  # the next discovery drops the image
        advice="the image does not exist; check spec.amiSelectorTerms of the EC2NodeClass",
    ),
    _Rule(_any(_code(*_THROTTLE_CODES), _says("RequestLimitExceeded")), FailureKind.THROTTLED, "RequestLimitExceeded"),
    _Rule(
        _any(
            _code("InternalError", "InternalFailure", "InternalServerError", "ServerInternal", "Unavailable"),
            _code("ServiceUnavailable", "ServiceUnavailableException", "InternalServiceError", "InternalException"),
            _code("RequestTimeout", "RequestTimeoutException", "Server.InternalError"),
            _says("InternalError"),
        ),
        FailureKind.SERVER,
        "InternalError",
        maybe_done=True,
    ),
    _Rule(
        _says("not eligible for Free Tier"),
        FailureKind.INVALID,
        "FreeTierIneligible",
        scope=FailureScope.OFFERING,
        advice="accounts on the free plan can launch only a few instance types; upgrade the plan, or allow those types in the NodePool",
    ),
    _Rule(
        _says("MaxFleetCountExceeded"),
        FailureKind.QUOTA,
        "FleetQuotaExceeded",
        scope=FailureScope.FLEET_QUOTA,
        advice="raise the EC2 Fleet quota in this Region",
    ),
    _Rule(
        # the code is not in AWS' list; source: https://github.com/aws/karpenter-provider-aws/issues/8686
        _code("MaxTemplateLimitExceeded", "LaunchTemplateLimitExceeded"),
        FailureKind.QUOTA,
        LAUNCH_TEMPLATE_QUOTA,
        advice="raise the launch template quota in this Region, or delete unused launch templates",
    ),
    _Rule(
        _says("PendingVerification"),
        FailureKind.QUOTA,
        "AccountPendingVerification",
        advice="AWS is still validating the account in this Region; this takes up to four hours",
    ),
    _Rule(
        _says("MaxSpotInstanceCountExceeded"),
        FailureKind.QUOTA,
        "SpotQuotaExceeded",
        scope=FailureScope.VCPU_QUOTA,
        advice="raise the quota for Spot Instance requests in this Region",
    ),
    _Rule(
        _any(_starts("VcpuLimitExceeded", "InstanceLimitExceeded"), _says("VcpuLimitExceeded")),
        FailureKind.QUOTA,
        "VCPULimitExceeded",
        scope=FailureScope.VCPU_QUOTA,
        advice="raise the quota for running On-Demand vCPUs of these instance types in this Region",
    ),
    _Rule(
        _says("InsufficientFreeAddressesInSubnet"),
        FailureKind.ADDRESSES,
        _NO_ADDRESSES,
        scope=FailureScope.SUBNET,
        advice="add subnets with free IP addresses to the EC2NodeClass",
    ),
    _Rule(
        # the first where the free addresses are scattered, the second where there are too few of them
        _any(_code("InsufficientCidrBlocks"), _says("InvalidParameterValue", "sufficient free", "prefixes")),
        FailureKind.ADDRESSES,
        _NO_ADDRESSES,
        scope=FailureScope.PREFIXES,
        advice="spec.ipPrefixCount needs free blocks of 16 contiguous addresses; create a CIDR reservation for prefixes in the subnet, "
        "or add subnets to the EC2NodeClass",
    ),
    _Rule(
        _code("InsufficientAddressCapacity"),
        FailureKind.SHORTAGE,
        LAUNCH_FAILED,
        scope=FailureScope.OFFERING,
        advice="AWS has no public IP addresses left there; set spec.associatePublicIPAddress of the EC2NodeClass to false if nodes need none",
    ),
    _Rule(
        _code("NetworkInterfaceLimitExceeded"),
        FailureKind.QUOTA,
        LAUNCH_FAILED,
        advice="raise the quota for network interfaces in this Region",
    ),
    _Rule(
        _code("VolumeLimitExceeded", "MaxIOPSLimitExceeded"),
        FailureKind.QUOTA,
        "VolumeLimitExceeded",
        advice="raise the Amazon EBS quotas for the storage and IOPS of this volume type in this Region, or delete unused volumes",
    ),
    _Rule(
        _code("InsufficientVolumeCapacity", "VolumeTypeNotAvailableInZone"),
        FailureKind.SHORTAGE,
        LAUNCH_FAILED,
        scope=FailureScope.OFFERING,
        advice="the Availability Zone has no such volumes; allow other zones or another volumeType in spec.blockDeviceMappings",
    ),
    _Rule(
        _says("limit of instances in this spread placement group"),
        FailureKind.SHORTAGE,
        LAUNCH_FAILED,
        scope=FailureScope.ZONE_OF_GROUP,
        advice="a spread placement group allows seven instances per Availability Zone",
    ),
    _Rule(
        _code("InvalidCapacityReservationState.PendingActivation"),
        FailureKind.SHORTAGE,
        LAUNCH_FAILED,
        scope=FailureScope.RESERVATION,
        advice="the Capacity Block has not started yet",
    ),
    _Rule(
        # the second: an interruptible reservation that its owner takes back
        _code(RESERVATION_EXCEEDED, "InvalidCapacityReservationState.Unavailable"),
        FailureKind.SHORTAGE,
        LAUNCH_FAILED,
        scope=FailureScope.RESERVATION,
    ),
    _Rule(
        _any(
            _code("InsufficientInstanceCapacity", "UnfulfillableCapacity", "Unsupported", "InsufficientCapacity"),
            _code("InsufficientHostCapacity", "InsufficientReservedInstanceCapacity", "SpotMaxPriceTooLow"),
        ),
        FailureKind.SHORTAGE,
        LAUNCH_FAILED,
        scope=FailureScope.OFFERING,
    ),
    _Rule(
        # a fleet's word for Unsupported; source: https://github.com/aws/karpenter-provider-aws/issues/1219, /2243 and /6483
        _all(_code("InvalidFleetConfiguration"), _says("not supported in your requested Availability Zone")),
        FailureKind.SHORTAGE,
        LAUNCH_FAILED,
        scope=FailureScope.OFFERING,
    ),
    _Rule(
        _code("IdempotentParameterMismatch", "IdempotentInstanceTerminated", "ClientTokenConflict"),
        FailureKind.MISMATCH,
        "IdempotentParameterMismatch",
    ),
    _Rule(
        _any(
            _code(
                "QueueDoesNotExist",
                "NoSuchEntity",
                "ParameterNotFound",
                "ResourceNotFoundException",
                "InvalidGroup.NotFound",
            ),
            _code(
                "AWS.SimpleQueueService.NonExistentQueue", "InvalidPlacementGroup.Unknown", "ParameterVersionNotFound"
            ),
            lambda code, _: code.endswith((".NotFound", ".NotFoundException")),
        ),
        FailureKind.NOT_FOUND,
        LAUNCH_FAILED,
    ),
    _Rule(
        _any(
            _code("EntityAlreadyExists", "ResourceInUseException", "InvalidPlacementGroup.Duplicate"),
            lambda code, _: code.endswith((".AlreadyExistsException", ".AlreadyExists", ".Duplicate")),
        ),
        FailureKind.EXISTS,
        LAUNCH_FAILED,
    ),
    _Rule(
        _any(
            _starts("InvalidParameter", "MissingParameter", "Malformed", "ValidationError", "ValidationException"),
            _starts("UnknownParameter", "InvalidInput", "UnsupportedOperation", "InvalidBlockDeviceMapping"),
            _starts("InvalidSnapshot", "InvalidSubnet", "InvalidGroup", "InvalidKeyPair", "InvalidFleetConfig"),
        ),
        FailureKind.INVALID,
        LAUNCH_FAILED,
        advice="EC2 rejects the request; check the EC2NodeClass",
    ),
)

_TIMEOUT_STATUS: Final = 408
_THROTTLE_STATUS: Final = 429
_SERVER_STATUS: Final = 500

_TYPE_NAME: Final = re.compile(r"([a-z]+)(?:-[0-9a-z]+)?[0-9]", re.ASCII)
_VCPU_CLASSES: Final = {
    **dict.fromkeys(("a", "c", "d", "h", "i", "im", "is", "m", "r", "t", "z"), "standard"),
    "f": "F",
    **dict.fromkeys(("g", "gr", "vt"), "G and VT"),
    "p": "P",
    "inf": "Inf",
    "trn": "Trn",
    "dl": "DL",
    "x": "X",
    "u": "high memory",
    "hpc": "HPC",
    "mac": "Mac",
}


def classify(code: str, message: str = "", status: int = 0) -> Failure:
    """Judge one error of AWS.

    Args:
        code: as AWS sends it; a "Client." or "Server." in front does not matter.
        message: as AWS sends it.
        status: of the HTTP answer, 0 where there was none of its own.
    """
    bare = code.removeprefix("Client.").removeprefix("Server.")
    for rule in _RULES:
        if rule.matches(bare, message):
            return Failure(rule.kind, rule.reason, code, message, rule.scope, rule.advice, maybe_done=rule.maybe_done)
    if status == _THROTTLE_STATUS:
        return Failure(FailureKind.THROTTLED, "RequestLimitExceeded", code, message)
    if status >= _SERVER_STATUS or status == _TIMEOUT_STATUS:
        return Failure(FailureKind.SERVER, "InternalError", code, message, maybe_done=True)
    return Failure(FailureKind.UNKNOWN, LAUNCH_FAILED, code, message)


def note_maybe_done(answer: MutableMapping[str, Any] | BaseException) -> None:
    """Write on the last answer of a call, or on what it raises, that an attempt before may have had its effect."""
    if isinstance(answer, BaseException):
        setattr(answer, MAYBE_DONE, True)
    else:
        answer.setdefault("ResponseMetadata", {})[MAYBE_DONE] = True


def may_repeat(answer: Mapping[str, Any]) -> bool:
    """Whether an answer may be that to a repetition: an attempt before it may have had its effect."""
    return bool(answer.get("ResponseMetadata", {}).get(MAYBE_DONE))


def classify_exception(error: BaseException) -> Failure:
    """Judge whatever a call of botocore raised; what is not from botocore is UNKNOWN, and its effect too.

    Where the SDK tried more than once, `maybe_done` counts every attempt, and the rest is what the last one said.
    """
    failure = _classify_last(error)
    answer = error.response if isinstance(error, botocore_errors.ClientError) else {}
    if may_repeat(answer) or getattr(error, MAYBE_DONE, False):
        return replace(failure, maybe_done=True)
    return failure


def _classify_last(error: BaseException) -> Failure:
    match error:
        case botocore_errors.ClientError():
            answer = error.response
            status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            said = answer.get("Error", {})
            return classify(str(said.get("Code", "")), str(said.get("Message", "")), int(status))
        case (
            botocore_errors.NoCredentialsError()
            | botocore_errors.PartialCredentialsError()
            | botocore_errors.CredentialRetrievalError()
            | botocore_errors.TokenRetrievalError()
            | botocore_errors.NoAuthTokenError()
        ):
            return Failure(
                FailureKind.CREDENTIALS,
                UNAUTHORIZED,
                "",
                str(error),
                advice="assign a role to the provisioner with EKS Pod Identity, IRSA or an instance profile",
            )
        case botocore_errors.ParamValidationError():
            return Failure(FailureKind.INVALID, LAUNCH_FAILED, "", str(error))
        case botocore_errors.HTTPClientError():  # cut off while it was answered
            return Failure(FailureKind.CONNECTION, LAUNCH_FAILED, "", str(error), maybe_done=True)
        case botocore_errors.ConnectionError():  # never reached, unless TLS broke in the middle
            tls = isinstance(error, botocore_errors.SSLError) and "CERTIFICATE_VERIFY_FAILED" not in str(error)
            return Failure(
                FailureKind.CONNECTION,
                LAUNCH_FAILED,
                "",
                str(error),
                advice="check DNS, routes and VPC endpoints of this service",
                maybe_done=tls,
            )
        case _:
            return Failure(FailureKind.UNKNOWN, LAUNCH_FAILED, "", f"{type(error).__name__}: {error}", maybe_done=True)


def launch_error(claim_name: str, failures: Sequence[Failure]) -> CloudError:
    """The error of a launch that gave no instance.

    All failures unfulfillable, or none at all: insufficient capacity. Else the first that is not: what a person should see.
    """
    telling = next((failure for failure in failures if not failure.unfulfillable), None)
    if telling is not None:
        return CreateError(telling.reason, str(telling))
    problems = list(dict.fromkeys(map(str, failures)))
    return InsufficientCapacityError(claim_name, "; ".join(problems) or "EC2 launched no instance and gave no reason")


@functools.cache  # asked for every offering; there are some 1,400 names
def quota_class(instance_type: str) -> str:
    """Which vCPU quota counts a type: "standard", "G and VT", "P"...; a family of its own for what we do not know.

    Source: EC2 user guide, on-demand and spot instance quotas.
    """
    found = _TYPE_NAME.match(instance_type)
    letters = found[1] if found else instance_type.partition(".")[0]
    return _VCPU_CLASSES.get(letters, letters)
