"""Security groups: which there are. Pure. Source: spec/karpenter-aws.md 3.2."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from provisioner.apis import ec2
from provisioner.ec2.nodeclass.queries import Query, tag_filters

OPERATION: Final = "describe_security_groups"
MEMBER: Final = "SecurityGroups"


@dataclass(frozen=True, slots=True)
class FoundSecurityGroup:
    """One security group."""

    id: str
    name: str = ""
    vpc: str = ""


def queries(terms: Iterable[ec2.SecurityGroupSelectorTerm]) -> tuple[Query, ...]:
    """What to ask EC2 for: one question a term with tags, one for all ids, one for all names; id wins over name, name over tags."""
    asked: list[Query] = []
    ids: set[str] = set()
    names: set[str] = set()
    for term in terms:
        if term.id:
            ids.add(term.id)
        elif term.name:
            names.add(term.name)
        elif term.tags:
            asked.append(Query(OPERATION, MEMBER, tag_filters(term.tags)))
    for filter_name, values in (("group-id", ids), ("group-name", names)):
        if values:
            asked.append(Query(OPERATION, MEMBER, ((filter_name, tuple(sorted(values))),)))
    return tuple(dict.fromkeys(asked))


def found(rows: Iterable[Mapping[str, Any]]) -> tuple[FoundSecurityGroup, ...]:
    """The groups of these answers, once each, by id."""
    by_id = {
        row["GroupId"]: FoundSecurityGroup(row["GroupId"], row.get("GroupName", ""), row.get("VpcId", ""))
        for row in rows
    }
    return tuple(by_id[name] for name in sorted(by_id))


def to_status(groups: Iterable[FoundSecurityGroup]) -> tuple[ec2.SecurityGroup, ...]:
    """As the class's status tells them."""
    return tuple(ec2.SecurityGroup(id=one.id, name=one.name) for one in groups)
