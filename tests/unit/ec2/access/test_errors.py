import dataclasses
from dataclasses import dataclass

import pytest
from botocore import exceptions as botocore_errors

from provisioner.cloudprovider.errors import CreateError, InsufficientCapacityError
from provisioner.ec2.access import errors
from provisioner.ec2.access.errors import FailureKind, FailureScope
from tests.support.ec2.shortages import SHORTAGES

DENY = "You are not authorized to perform this operation. User: x is not authorized to perform: ec2:RunInstances"


@dataclass(frozen=True)
class Case:
    code: str
    kind: FailureKind
    reason: str = "LaunchFailed"
    message: str = ""
    status: int = 400
    scope: FailureScope = FailureScope.NOTHING
    advice: str = ""
    maybe_done: bool = False


CASES = {
    "no capacity": Case("InsufficientInstanceCapacity", FailureKind.SHORTAGE, scope=FailureScope.OFFERING),
    "no pool of the fleet has any": Case("UnfulfillableCapacity", FailureKind.SHORTAGE, scope=FailureScope.OFFERING),
    "not sold in that zone": Case("Unsupported", FailureKind.SHORTAGE, scope=FailureScope.OFFERING),
    "reservation used up": Case("ReservationCapacityExceeded", FailureKind.SHORTAGE, scope=FailureScope.RESERVATION),
    "reservation is taken back": Case(
        "InvalidCapacityReservationState.Unavailable", FailureKind.SHORTAGE, scope=FailureScope.RESERVATION
    ),
    "spread placement group is full": Case(
        "InsufficientInstanceCapacity",
        FailureKind.SHORTAGE,
        message="You have reached the limit of instances in this spread placement group",
        scope=FailureScope.ZONE_OF_GROUP,
        advice="seven",
    ),
    "no addresses": Case(
        "InsufficientFreeAddressesInSubnet",
        FailureKind.ADDRESSES,
        "InsufficientFreeAddressesInSubnet",
        scope=FailureScope.SUBNET,
        advice="add subnets",
    ),
    "a subnet whose free addresses are scattered": Case(
        "InsufficientCidrBlocks",
        FailureKind.ADDRESSES,
        "InsufficientFreeAddressesInSubnet",
        "The specified subnet does not have enough free cidr blocks to satisfy the request.",
        scope=FailureScope.PREFIXES,
        advice="CIDR reservation",
    ),
    "a subnet with fewer addresses than the prefixes have": Case(
        "InvalidParameterValue",
        FailureKind.ADDRESSES,
        "InsufficientFreeAddressesInSubnet",
        "There aren't sufficient free Ipv4 addresses or prefixes",
        scope=FailureScope.PREFIXES,
        advice="ipPrefixCount",
    ),
    "no public addresses": Case(
        "InsufficientAddressCapacity",
        FailureKind.SHORTAGE,
        scope=FailureScope.OFFERING,
        advice="associatePublicIPAddress",
    ),
    "quota of network interfaces": Case(
        "NetworkInterfaceLimitExceeded", FailureKind.QUOTA, advice="network interfaces"
    ),
    "quota of volumes": Case("VolumeLimitExceeded", FailureKind.QUOTA, "VolumeLimitExceeded", advice="EBS quotas"),
    "quota of IOPS": Case("MaxIOPSLimitExceeded", FailureKind.QUOTA, "VolumeLimitExceeded", advice="IOPS"),
    "a zone without such volumes": Case(
        "InsufficientVolumeCapacity",
        FailureKind.SHORTAGE,
        scope=FailureScope.OFFERING,
        advice="volumeType",
    ),
    "a zone that does not sell the volume type": Case(
        "VolumeTypeNotAvailableInZone",
        FailureKind.SHORTAGE,
        scope=FailureScope.OFFERING,
        advice="volumeType",
    ),
    "a capacity block that has not begun": Case(
        "InvalidCapacityReservationState.PendingActivation",
        FailureKind.SHORTAGE,
        scope=FailureScope.RESERVATION,
        advice="not started",
    ),
    "spot quota": Case(
        "MaxSpotInstanceCountExceeded",
        FailureKind.QUOTA,
        "SpotQuotaExceeded",
        scope=FailureScope.VCPU_QUOTA,
        advice="quota",
    ),
    "vCPU quota": Case(
        "VcpuLimitExceeded",
        FailureKind.QUOTA,
        "VCPULimitExceeded",
        scope=FailureScope.VCPU_QUOTA,
        advice="quota",
    ),
    "fleet quota": Case(
        "MaxFleetCountExceeded", FailureKind.QUOTA, "FleetQuotaExceeded", scope=FailureScope.FLEET_QUOTA, advice="quota"
    ),
    "account being verified": Case(
        "PendingVerification", FailureKind.QUOTA, "AccountPendingVerification", advice="four hours"
    ),
    "free plan": Case(
        "InvalidParameterCombination",
        FailureKind.INVALID,
        "FreeTierIneligible",
        "The specified instance type is not eligible for Free Tier.",
        scope=FailureScope.OFFERING,
        advice="plan",
    ),
    "spot role missing": Case(
        "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
        FailureKind.DENIED,
        "SpotSLRCreationFailed",
        scope=FailureScope.CAPACITY_TYPE,
        advice="create-service-linked-role",
    ),
    "denied": Case("UnauthorizedOperation", FailureKind.DENIED, "Unauthorized", DENY, 403, advice="controller role"),
    "denied by another word": Case(
        "AccessDeniedException", FailureKind.DENIED, "Unauthorized", DENY, 400, advice="controller role"
    ),
    "denied by the boundary": Case(
        "UnauthorizedOperation",
        FailureKind.DENIED,
        "Unauthorized",
        DENY + " with an explicit deny in a permissions boundary",
        403,
        advice="boundary",
    ),
    "not allowed by the boundary": Case(
        "UnauthorizedOperation",
        FailureKind.DENIED,
        "Unauthorized",
        DENY + " because no permissions boundary allows the ec2:RunInstances action",
        403,
        advice="add the action to the boundary",
    ),
    "denied by the organization": Case(
        "UnauthorizedOperation",
        FailureKind.DENIED,
        "Unauthorized",
        DENY + " with an explicit deny in a service control policy",
        403,
        advice="organization",
    ),
    "image not shared": Case(
        "AuthFailure",
        FailureKind.DENIED,
        "AMIAuthorizationFailure",
        "Not authorized for images: [ami-1]",
        403,
        advice="share the image",
    ),
    "expired credentials": Case(
        "RequestExpired", FailureKind.CREDENTIALS, "Unauthorized", status=400, advice="credentials"
    ),
    "credentials that AWS does not know": Case(
        "AuthFailure",
        FailureKind.CREDENTIALS,
        "Unauthorized",
        "AWS was not able to validate the provided access credentials",
        401,
        advice="credentials",
    ),
    "groups of another VPC": Case(
        "InvalidParameter",
        FailureKind.INVALID,
        "SecurityGroupSubnetVPCMismatch",
        "Security group sg-1 and subnet subnet-1 belong to different networks.",
        advice="same VPC",
    ),
    "profile not known yet": Case(
        "InvalidParameterValue",
        FailureKind.INVALID,
        "InstanceProfileNameInvalid",
        "Value (x) for parameter iamInstanceProfile.name is invalid.",
        advice="instance profile",
    ),
    "profile with a wrong name": Case(
        "InvalidParameterValue",
        FailureKind.INVALID,
        "InstanceProfileNameInvalid",
        "Invalid IAM Instance Profile name",
        advice="instance profile",
    ),
    "template gone, by name": Case(
        "InvalidLaunchTemplateName.NotFoundException", FailureKind.NOT_FOUND, "LaunchTemplateNotFound"
    ),
    "template gone, by id": Case("InvalidLaunchTemplateId.NotFound", FailureKind.NOT_FOUND, "LaunchTemplateNotFound"),
    "template gone, by id and the longer word": Case(
        "InvalidLaunchTemplateId.NotFoundException", FailureKind.NOT_FOUND, "LaunchTemplateNotFound"
    ),
    "user data too long": Case(
        "InvalidUserData.Malformed",
        FailureKind.INVALID,
        "UserDataSizeLimitExceeded",
        "User data is limited to 16384 bytes",
        advice="16384",
    ),
    "user data malformed": Case(
        "InvalidUserData.Malformed",
        FailureKind.INVALID,
        "InvalidUserData",
        "Invalid BASE64 encoding of user data.",
        advice="user data",
    ),
    "image id malformed": Case(
        "InvalidAMIID.Malformed", FailureKind.INVALID, "InvalidAMIID", advice="amiSelectorTerms"
    ),
    "image gone": Case("InvalidAMIID.NotFound", FailureKind.NOT_FOUND, "AMINotFound", advice="amiSelectorTerms"),
    "throttled by EC2": Case("RequestLimitExceeded", FailureKind.THROTTLED, "RequestLimitExceeded", status=503),
    "throttled by others": Case("ThrottlingException", FailureKind.THROTTLED, "RequestLimitExceeded"),
    "throttled by status alone": Case("", FailureKind.THROTTLED, "RequestLimitExceeded", status=429),
    "server error": Case("InternalError", FailureKind.SERVER, "InternalError", status=500, maybe_done=True),
    "server error of a fleet": Case(
        "Server.InternalError", FailureKind.SERVER, "InternalError", status=0, maybe_done=True
    ),
    "server error by status alone": Case("Strange", FailureKind.SERVER, "InternalError", status=502, maybe_done=True),
    "unavailable": Case("Unavailable", FailureKind.SERVER, "InternalError", status=503, maybe_done=True),
    "token of another request": Case(
        "IdempotentParameterMismatch", FailureKind.MISMATCH, "IdempotentParameterMismatch"
    ),
    "dry run": Case("DryRunOperation", FailureKind.DRY_RUN, "DryRunOperation", status=412),
    "instance gone": Case("InvalidInstanceID.NotFound", FailureKind.NOT_FOUND),
    "reservation gone": Case("InvalidCapacityReservationId.NotFound", FailureKind.NOT_FOUND),
    "queue gone": Case("AWS.SimpleQueueService.NonExistentQueue", FailureKind.NOT_FOUND),
    "queue gone, the JSON protocol": Case("QueueDoesNotExist", FailureKind.NOT_FOUND),
    "role gone": Case("NoSuchEntity", FailureKind.NOT_FOUND, status=404),
    "parameter gone": Case("ParameterNotFound", FailureKind.NOT_FOUND),
    "profile exists": Case("EntityAlreadyExists", FailureKind.EXISTS, status=409),
    "template exists": Case("InvalidLaunchTemplateName.AlreadyExistsException", FailureKind.EXISTS),
    "request refused": Case("InvalidParameterValue", FailureKind.INVALID, advice="EC2 rejects the request"),
    "something new": Case("BrandNewProblem", FailureKind.UNKNOWN),
    "nothing said": Case("", FailureKind.UNKNOWN, status=0),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_classify(case: Case) -> None:
    failure = errors.classify(case.code, case.message, case.status)
    assert (failure.kind, failure.reason, failure.scope, failure.maybe_done) == (
        case.kind,
        case.reason,
        case.scope,
        case.maybe_done,
    )
    assert case.advice in failure.advice
    assert bool(case.advice) == bool(failure.advice)
    assert (failure.code, failure.message) == (case.code, case.message)


@pytest.mark.parametrize("parameter", SHORTAGES)
def test_the_shortage_of_each_request_parameter_is_known(parameter: str) -> None:
    """None is taken for a wrong request, which would never be sent again; of what no other offering helps against a person is told."""
    failure = errors.classify(*SHORTAGES[parameter])
    assert failure.kind in {FailureKind.SHORTAGE, FailureKind.ADDRESSES, FailureKind.QUOTA}
    assert failure.unfulfillable or failure.advice


EXCEPTIONS = {
    "an answer": (
        botocore_errors.ClientError(
            {"Error": {"Code": "VcpuLimitExceeded", "Message": "m"}, "ResponseMetadata": {"HTTPStatusCode": 400}},
            "CreateFleet",
        ),
        FailureKind.QUOTA,
        False,
    ),
    "an answer by status alone": (
        botocore_errors.ClientError(
            {"Error": {"Code": "503", "Message": "Service Unavailable"}, "ResponseMetadata": {"HTTPStatusCode": 503}},
            "CreateFleet",
        ),
        FailureKind.SERVER,
        True,
    ),
    "no credentials": (botocore_errors.NoCredentialsError(), FailureKind.CREDENTIALS, False),
    "credentials that cannot be had": (
        botocore_errors.CredentialRetrievalError(provider="x", error_msg="y"),
        FailureKind.CREDENTIALS,
        False,
    ),
    "no answer in time": (botocore_errors.ReadTimeoutError(endpoint_url="https://ec2"), FailureKind.CONNECTION, True),
    "cut off": (botocore_errors.ConnectionClosedError(endpoint_url="https://ec2"), FailureKind.CONNECTION, True),
    "never reached": (botocore_errors.ConnectTimeoutError(endpoint_url="https://ec2"), FailureKind.CONNECTION, False),
    "no such host": (
        botocore_errors.EndpointConnectionError(endpoint_url="https://ec2"),
        FailureKind.CONNECTION,
        False,
    ),
    "TLS breaks in the middle": (
        botocore_errors.SSLError(endpoint_url="https://ec2", error="DECRYPTION_FAILED_OR_BAD_RECORD_MAC"),
        FailureKind.CONNECTION,
        True,
    ),
    "a certificate that nobody trusts": (
        botocore_errors.SSLError(endpoint_url="https://ec2", error="CERTIFICATE_VERIFY_FAILED"),
        FailureKind.CONNECTION,
        False,
    ),
    "wrong parameters": (botocore_errors.ParamValidationError(report="r"), FailureKind.INVALID, False),
    "a defect": (KeyError("x"), FailureKind.UNKNOWN, True),
}


@pytest.mark.parametrize(("error", "kind", "maybe_done"), EXCEPTIONS.values(), ids=EXCEPTIONS)
def test_classify_exception(error: Exception, kind: FailureKind, maybe_done: bool) -> None:
    failure = errors.classify_exception(error)
    assert (failure.kind, failure.maybe_done) == (kind, maybe_done)


LAST = {
    "an answer": botocore_errors.ClientError(
        {"Error": {"Code": "RequestLimitExceeded", "Message": "m"}, "ResponseMetadata": {"HTTPStatusCode": 503}},
        "CreateFleet",
    ),
    "no answer": botocore_errors.EndpointConnectionError(endpoint_url="https://ec2"),
}


@pytest.mark.parametrize("error", LAST.values(), ids=LAST)
def test_the_last_attempt_says_nothing_of_those_before(error: Exception) -> None:
    before = errors.classify_exception(error)
    assert not before.maybe_done
    errors.note_maybe_done(error.response if isinstance(error, botocore_errors.ClientError) else error)
    assert errors.classify_exception(error) == dataclasses.replace(before, maybe_done=True)


def test_a_launch_without_capacity_is_a_shortage() -> None:
    error = errors.launch_error("c-1", [errors.classify("InsufficientInstanceCapacity", "none here")] * 3)
    assert isinstance(error, InsufficientCapacityError)
    assert str(error) == "no capacity for NodeClaim c-1: InsufficientInstanceCapacity: none here"


def test_a_launch_without_any_word_is_a_shortage() -> None:
    error = errors.launch_error("c-1", [])
    assert isinstance(error, InsufficientCapacityError)


def test_one_failure_that_no_offering_helps_against_decides() -> None:
    error = errors.launch_error(
        "c-1", [errors.classify("InsufficientInstanceCapacity"), errors.classify("UnauthorizedOperation", DENY)]
    )
    assert isinstance(error, CreateError)
    assert error.reason == "Unauthorized"
    assert "dovetail aws check" in error.message


QUOTAS = {
    "m5.large": "standard",
    "t4g.nano": "standard",
    "im4gn.large": "standard",
    "is4gen.large": "standard",
    "z1d.large": "standard",
    "g5.xlarge": "G and VT",
    "gr6.4xlarge": "G and VT",
    "vt1.3xlarge": "G and VT",
    "p5.48xlarge": "P",
    "inf2.xlarge": "Inf",
    "trn1.2xlarge": "Trn",
    "x2idn.16xlarge": "X",
    "u-6tb1.112xlarge": "high memory",
    "u7i-12tb.224xlarge": "high memory",
    "hpc7g.4xlarge": "HPC",
    "f1.2xlarge": "F",
    "dl1.24xlarge": "DL",
    "q9.large": "q",
    "odd": "odd",
}


@pytest.mark.parametrize(("name", "want"), QUOTAS.items(), ids=QUOTAS)
def test_quota_class(name: str, want: str) -> None:
    assert errors.quota_class(name) == want


SAID: dict[str, tuple[str, str]] = {
    "plain": ("You may not.", "You may not."),
    "with the encoded reason": (
        "You are not authorized to perform this operation. Encoded authorization failure message: x9-A_b/c==",
        "You are not authorized to perform this operation.",
    ),
    "with the id of the request": (
        "slow down (Request ID: 5d1b2c3a-0000-4000-8000-2026112100e5)",
        "slow down",
    ),
}


@pytest.mark.parametrize("case", SAID.values(), ids=SAID)
def test_the_same_failure_reads_the_same(case: tuple[str, str]) -> None:
    message, want = case
    assert str(errors.Failure(FailureKind.UNKNOWN, "R", "Code", message)) == f"Code: {want}"
