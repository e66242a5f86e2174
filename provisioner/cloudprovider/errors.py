"""What a cloud provider may answer instead of an instance."""

from provisioner.values.message import Said


class CloudError(Exception):
    """Base of every error that a provider raises on purpose; anything else is a defect or a broken connection.

    Attributes:
        retry_after: seconds until the same is worth another try; None leaves that to the caller.
    """

    retry_after: float | None = None


class LaunchUnderWayError(CloudError):
    """The launch goes on; ask again after `retry_after`, or when the provider calls (`CloudProvider.listen`).

    Attributes:
        reason: one CamelCase word for the Launched condition, where something is wrong with the launch; "" where nothing is. There may be an instance
            all the same, so the claim is not given up for it.
        problem: what is wrong, a sentence for people.
    """

    def __init__(self, claim_name: str, retry_after: float = 1.0, reason: str = "", problem: str = "") -> None:
        super().__init__(claim_name, retry_after, reason, problem)
        self.claim_name, self.retry_after, self.reason, self.problem = claim_name, retry_after, reason, problem

    def __str__(self) -> str:
        under_way = Said(f"the launch of NodeClaim {self.claim_name} is in progress")
        return f"{under_way}: {self.problem}" if self.problem else under_way


class InsufficientCapacityError(CloudError):
    """No offering that the claim allows can be had now; raised by `CloudProvider.create`.

    Attributes:
        retry_after: seconds until the same claim is worth another try, which will succeed when capacity is back; None: it never will.
        exhausted: whether everything that the claim allows was refused lately, so that pods should go elsewhere if they can.
    """

    def __init__(
        self, claim_name: str, problem: str, retry_after: float | None = None, *, exhausted: bool = True
    ) -> None:
        super().__init__(claim_name, problem)  # args: picklable, comparable in tests
        self.claim_name, self.problem = claim_name, problem
        self.retry_after, self.exhausted = retry_after, exhausted

    def __str__(self) -> str:
        return Said(f"no capacity for NodeClaim {self.claim_name}: {self.problem}")


class NodeClassNotReadyError(CloudError):
    """The NodeClass that the claim refers to is missing or not ready; raised by `CloudProvider.create`."""

    def __init__(self, kind: str, name: str, problem: str) -> None:
        super().__init__(kind, name, problem)
        self.kind, self.name, self.problem = kind, name, problem

    def __str__(self) -> str:
        return Said(f"{self.kind} {self.name} is not ready: {self.problem}")


class InstanceNotFoundError(CloudError):
    """There is no such instance, or no longer; raised by `CloudProvider.get` and `.delete`. For a deletion this is the good end.

    Attributes:
        failed_launch: why the cloud ended it unasked, a sentence for people: if its Node has not registered, its launch has failed; "" where somebody asked
            for the end, or nobody knows.
    """

    def __init__(self, provider_id: str, failed_launch: str = "") -> None:
        super().__init__(provider_id)
        self.provider_id, self.failed_launch = provider_id, failed_launch

    def __str__(self) -> str:
        return f"instance {self.provider_id} does not exist" if self.provider_id else "the NodeClaim has no instance"


class CreateError(CloudError):
    """The launch failed for a reason worth a condition on the claim; raised by `CloudProvider.create`.

    Attributes:
        reason: one CamelCase word for the Launched condition.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(reason, message)
        self.reason, self.message = reason, message

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"


class RebootRefusedError(CloudError):
    """The instance was not rebooted, for certain; raised by `CloudProvider.reboot`.

    Attributes:
        problem: why, a sentence for people.
        final: another try would be in vain.
    """

    def __init__(self, problem: str, *, final: bool) -> None:
        super().__init__(problem, final)
        self.problem, self.final = problem, final

    def __str__(self) -> str:
        return self.problem
