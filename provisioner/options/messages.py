"""Texts that `options` makes and others publish, by the module that uses them; docs/reference/messages.md is generated from here. Pure."""

from collections.abc import Sequence
from typing import Final

# __init__.py
NOT_A_BOOLEAN: Final = "must be true or false"
NOT_A_NUMBER: Final = "must be a number"
NEGATIVE: Final = "must be 0 or more"
NOT_A_SHARE: Final = "must be at least 0 and less than 1, such as 0.075 for 7.5 %"
NOT_A_URL: Final = "must be a complete URL such as https://host:443"
NOT_A_DURATION: Final = 'must be a duration such as "10s", "1m30s" or "300ms"'
DURATION_IS_ZERO: Final = "must be longer than 0"
SHORTER_THAN_A_MINUTE: Final = "must be 1m or longer"


def not_one_of(choices: Sequence[str]) -> str:
    """What is wrong with a flag that takes one of several words; "" may be one of them."""
    return f"must be one of {', '.join(choice or 'an empty value' for choice in choices)}"


NOT_HOST_AND_PORT: Final = 'must be host:port, such as "10.0.0.7:8444"'
NO_DESTINATION: Final = "must name at least one of stdout, stderr or a file"
NOT_A_WHOLE_NUMBER: Final = "must be a whole number"
NOT_A_CA_BUNDLE: Final = "must be a CA bundle in base64"


def gate_without_value(gate: str) -> str:
    return f'must be a list such as "NodeRepair=true,NodeOverlay=false" with a value for {gate!r}'


def no_scheduler_configuration(error: str) -> str:
    return (
        f"must be a scheduler configuration in YAML or JSON, with podTopologySpread.defaultConstraints alone ({error})"
    )


CLUSTER_NAME_REQUIRED: Final = "--cluster-name (or CLUSTER_NAME) is required with --provider=aws"
IDLE_LONGER_THAN_MAX: Final = "--batch-idle-duration must not be longer than --batch-max-duration"


def not_a_flag(word: str) -> str:
    return f"{word!r} is not a flag; flags begin with --"


NOT_AN_ADDRESS: Final = "must be an IP address of this host, or empty for all addresses"


def gate_is_no_boolean(name: str) -> str:
    return f"must set feature gate {name} to true or false"


def port_used_twice(flag: str, other: str, port: int) -> str:
    return f"{flag} and {other} are both set to {port}; set them to different ports"


def value_is_missing(flag: str) -> str:
    return f"flag --{flag} requires a value"


def out_of_range(low: int, high: int | None) -> str:
    """What is wrong with the number of a flag; `high` is None where there is no maximum."""
    return f"must be {low} or more" if high is None else f"must be from {low} to {high}"


def unknown_flag(flag: str, close: str) -> str:
    """What `OptionsError` says; `close` is the flag that was probably meant, or ""."""
    return (
        f"unknown flag --{flag}; did you mean --{close}?" if close else f"unknown flag --{flag}; --help lists all flags"
    )
