"""Whom a lookup may talk to, and who may hear a password."""

import ipaddress

import pytest

from webhook.images.references import Host
from webhook.images.trust import Trust, TrustError, parse_accounts, parse_networks, parse_registries

ECR = "123456789012.dkr.ecr.eu-central-1.amazonaws.com"

NEVER = (
    "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "169.254.170.23", "100.64.0.1", "100.100.100.200", "168.63.129.16",
    "0.0.0.0", "224.0.0.1", "255.255.255.255", "192.0.2.1", "::1", "::", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1", "::ffff:127.0.0.1",
    "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b::169.254.169.254", "2002:0a00:0001::1", "2002:7f00:0001::",
    "64:ff9b:1::a00:1", "64:ff9b:1:fffe::a9fe:a9fe", "::ffff:0:10.0.0.1", "::ffff:0:169.254.169.254", "fec0::1", "feff::1", "192.0.0.1", "192.0.0.192",
)  # fmt: skip
PUBLIC = ("1.1.1.1", "52.94.133.131", "2606:4700::1111", "64:ff9b::1.1.1.1", "::ffff:1.1.1.1")


@pytest.mark.parametrize("text", NEVER)
def test_addresses_that_are_not_public_are_not_reached(text: str) -> None:
    assert not Trust().reaches(ipaddress.ip_address(text))


@pytest.mark.parametrize("text", PUBLIC)
def test_public_addresses_are(text: str) -> None:
    assert Trust().reaches(ipaddress.ip_address(text))


def test_a_listed_private_network_is_reached_and_metadata_is_not_whatever_is_listed() -> None:
    trust = Trust(networks=parse_networks("10.0.0.0/8, 127.0.0.0/8, 0.0.0.0/0, fd00::/8, ::/0"))
    assert trust.reaches(ipaddress.ip_address("10.1.2.3"))
    assert trust.reaches(ipaddress.ip_address("::ffff:10.1.2.3"))
    assert trust.reaches(ipaddress.ip_address("fd12::1"))
    for text in (
        *("169.254.169.254", "100.100.100.200", "168.63.129.16", "fd00:ec2::254", "::ffff:169.254.169.254"),
        *("192.0.0.192", "64:ff9b:1::a9fe:a9fe", "::ffff:0:169.254.169.254", "fec0::1"),
    ):
        assert not trust.reaches(ipaddress.ip_address(text))


def test_a_registry_is_asked_only_if_it_is_listed_by_its_port_too() -> None:
    trust = Trust(parse_registries("ghcr.io, *.example.com, r.corp:5000"))
    assert trust.asks(Host("ghcr.io"))
    assert trust.asks(Host("a.b.example.com"))
    assert trust.asks(Host("r.corp", 5000))
    for host in (Host("ghcr.io", 8443), Host("example.com"), Host("badexample.com"), Host("r.corp"), Host("docker.io")):
        assert not trust.asks(host)
    assert not Trust().asks(Host("docker.io"))


def test_our_role_is_for_listed_accounts_alone() -> None:
    trust = Trust(accounts=parse_accounts("123456789012"))
    assert trust.region_of(Host(ECR)) == "eu-central-1"
    assert trust.asks(Host(ECR))
    for name in (
        ECR.replace("1234", "9999"),
        f"{ECR}.evil.com",
        f"evil.{ECR}",
        ECR.replace("amazonaws.com", "amazonaws.evil"),
        ECR.replace("dkr.ecr", "dkr.s3"),
    ):
        assert trust.region_of(Host(name)) is None
        assert not trust.asks(Host(name))
    assert trust.region_of(Host(ECR, 444)) is None
    assert Trust(parse_registries("*.amazonaws.com")).region_of(Host(ECR)) is None


def test_who_may_hear_a_password() -> None:
    trust = Trust(parse_registries("docker.io, r.corp=tokens.corp, ghcr.io"))
    hub, corp = Host("docker.io"), Host("r.corp")
    assert trust.makes_tokens(hub, Host("auth.docker.io"))
    assert trust.makes_tokens(corp, Host("tokens.corp"))
    assert trust.makes_tokens(corp, corp)
    assert not trust.makes_tokens(corp, Host("auth.docker.io"))
    assert not trust.makes_tokens(hub, Host("tokens.corp"))
    assert not trust.makes_tokens(hub, Host("production.cloudflare.docker.com")), "a store needs none"
    assert not trust.makes_tokens(Host("ghcr.io"), Host("ghcr.io", 8443))
    assert trust.makes_tokens(Host("public.ecr.aws"), Host("public.ecr.aws"))
    assert not trust.makes_tokens(Host("public.ecr.aws"), Host("d2glxqk2uabbnd.cloudfront.net"))


def test_where_a_registry_may_send_us() -> None:
    trust = Trust(parse_registries("docker.io, r.corp=store.corp"), accounts=parse_accounts("123456789012"))
    assert trust.follows(Host("docker.io"), Host("production.cloudflare.docker.com"))
    assert trust.follows(Host("docker.io"), Host("registry-1.docker.io"))
    assert trust.follows(Host("r.corp"), Host("store.corp"))
    assert trust.follows(Host(ECR), Host("prod-eu-central-1-starport-layer-bucket.s3.eu-central-1.amazonaws.com"))
    assert trust.follows(Host("public.ecr.aws"), Host("d2glxqk2uabbnd.cloudfront.net"))
    assert not trust.follows(Host("public.ecr.aws"), Host("cloudfront.net"))
    assert not trust.follows(Host(ECR), Host("d2glxqk2uabbnd.cloudfront.net"))
    assert not trust.follows(Host("r.corp"), Host("production.cloudflare.docker.com"))
    assert not trust.follows(Host("r.corp"), Host("evil.com"))
    assert not trust.follows(Host("docker.io"), Host("cloudflarestorage.com"))


@pytest.mark.parametrize(
    ("parse", "text", "words"),
    [
        (parse_registries, "https://ghcr.io", "has no valid port; use HOST"),
        (parse_registries, "*", "is not a host name"),
        (parse_registries, "ghcr.io=", "is not a host name"),
        (parse_networks, "10.0.0.1/8", "is not a network"),
        (parse_networks, "169.254.0.0/16", "link-local"),
        (parse_networks, "fe80::/64", "link-local"),
        (parse_networks, "64:ff9b:1::/64", "never used"),
        (parse_accounts, "12345", "12 digits"),
    ],
)
def test_a_flag_that_cannot_be_used_is_a_sentence(parse: object, text: str, words: str) -> None:
    with pytest.raises(TrustError, match=words):
        parse(text)  # type: ignore[operator]
