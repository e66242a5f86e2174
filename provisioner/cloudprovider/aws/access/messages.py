"""Texts that `cloudprovider/aws/access` makes and others publish, by the module that uses them; docs/reference/messages.md is generated from here. Pure."""


# client.py


def page_token_repeated(operation: str) -> str:
    return f"{operation} answered the same page token twice"


# wire.py


def other_element(name: str, tag: str) -> str:
    return f"expected {name}, got {tag}"


def no_xml(name: str, error: Exception) -> str:
    return f"expected {name}, got no XML: {error}"
