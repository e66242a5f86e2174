"""Texts that `cloudprovider/aws/launch` publishes, by the module that does; docs/reference/messages.md is generated from them."""

from typing import Final

# launch_templates.py
LAUNCH_TEMPLATE_QUOTA_NEARLY_USED_UP: Final = (
    "The launch template quota of this Region is nearly used up; raise the quota or delete unused launch templates"
)
CREATED_LAUNCH_TEMPLATE: Final = "Created a launch template"
DELETED_LAUNCH_TEMPLATES_FOR_QUOTA: Final = "Deleted launch templates because the quota of this Region is used up"
FAILED_TO_DELETE_LAUNCH_TEMPLATE: Final = "Failed to delete a launch template; retrying"
DELETED_LAUNCH_TEMPLATE: Final = "Deleted a launch template"

# launcher.py
TWO_NODECLAIMS_FOR_ONE_INSTANCE: Final = (
    "Two NodeClaims refer to one instance; the NodeClaim that is not being deleted keeps it"
)
FAILED_TO_LAUNCH_NODECLAIMS: Final = "Failed to launch NodeClaims; retrying"
FAILED_TO_RESOLVE_LAUNCH_REQUEST: Final = "Failed to resolve the launch request of a NodeClaim"
LAUNCHING_ON_DEMAND_ALTHOUGH_SPOT_IS_ALLOWED: Final = (
    "Launching on-demand capacity although spot is allowed; allow at least five instance types to make spot available"
)
FAILED_TO_PREPARE_EC2NODECLASS: Final = "Failed to prepare an EC2NodeClass for launches"
LAUNCH_FAILED: Final = "Launch failed"
CREATEFLEET_LEFT_OUT_INSTANCES: Final = (
    "CreateFleet did not report what it launched; looking for instances by batch tag"
)
LAUNCHED_FLEET: Final = "Launched a fleet"
EC2_ENDED_AN_INSTANCE_AT_LAUNCH: Final = "EC2 terminated an instance at launch"
FAILED_TO_RESUME_LAUNCH: Final = "Failed to resume a launch; retrying"
LAUNCH_CANNOT_BE_REPLAYED: Final = "A launch cannot be replayed; looking for instances by batch tag"
RESUMED_LAUNCH_BY_REPLAY: Final = "Resumed a launch by replaying CreateFleet"
RESUMED_LAUNCH_FROM_BATCH_TAG: Final = "Resumed a launch from its batch tag"

# mark_writer.py
FAILED_TO_REMOVE_LAUNCH_MARK: Final = "Failed to remove a launch mark; it is resolved after the next restart"
FAILED_TO_WRITE_LAUNCH_MARK: Final = "Failed to write the launch mark of a NodeClaim"

# launcher.py
RECORD_NOT_CONFIRMED: Final = "the API server did not confirm that the launch was recorded on the NodeClaim"


def capacity_was_short(short_wait: float) -> str:
    return f"capacity for its instance types was short; a smaller batch is launched first, retrying in {short_wait:g} s"


FLEET_QUOTA_USED_UP: Final = "the EC2 Fleet quota of this Region is used up"


def launch_not_recorded(why: str) -> str:
    return f"the launch could not be recorded on the NodeClaim: {why}"


def repeated_call_left_out_instances(fleet: str) -> str:
    return (
        f"EC2 answered a repeated CreateFleet with fleet {fleet} but without its instances; looking for "
        "instances by batch tag"
    )


def no_recent_capacity(short_wait: float) -> str:
    return f"no recent capacity for its instance types; other launches test them first, retrying in {short_wait:g} s"


def instance_not_determined(error: Exception) -> str:
    return f"could not determine which instance was launched for the NodeClaim: {error}"


INTERNAL_ERROR: Final = "internal error; the log of the provisioner has the details"

# mark_writer.py
NO_ATTEMPT_WAS_MADE: Final = "no attempt was made"
OTHER_NODECLAIM_OF_THE_NAME: Final = "another NodeClaim with the same name exists"
NODECLAIM_NEEDS_NO_INSTANCE: Final = "the NodeClaim is being deleted or already has an instance"
PART_OF_OTHER_LAUNCH: Final = "the NodeClaim is part of another launch"

# orders.py
NODECLASS_DOES_NOT_EXIST: Final = "it does not exist"
NODECLASS_IS_BEING_DELETED: Final = "it is being deleted"


def nodeclass_readiness_unknown(kind: str, name: str) -> str:
    return f"the readiness of {kind} {name} is not known yet"


NO_FREE_ADDRESSES: Final = (
    "no subnet of the EC2NodeClass in the zones of the matching instance types has free IP addresses"
)


def no_image_runs_on(instance_types: str) -> str:
    return f"no image of the EC2NodeClass runs on {instance_types}"


def invalid_user_data(error: Exception) -> str:
    return f"user data: {error}"


# selection.py


def min_values_not_met(max_types: int, short: str) -> str:
    return f"the {max_types} cheapest instance types do not meet minValues: {short}"


def no_type_left(name: str) -> str:
    return f"no instance type is left after the filter {name}"


# userdata/al2023.py
SERVICE_CIDR_UNKNOWN: Final = "AL2023 needs the service CIDR of the cluster, which is not known"
YAML_NESTED_TOO_DEEPLY: Final = "the YAML is nested too deeply, or its aliases unfold to too much"

# userdata/node_config.py
YAML_IS_NO_MAPPING: Final = "its first document is not a mapping"


def not_a_node_config(problem: str) -> str:
    return f"nodeadm cannot read a part of type application/node.eks.aws, and nodes would not join: {problem}"


def part_not_unpacked(error: Exception) -> str:
    return f"nodeadm cannot decompress a part of type application/node.eks.aws, and nodes would not join: {error}"


def other_than_a_node_config(said: str, api_version: str, kind: str) -> str:
    """Why an EC2NodeClass is not valid; `said` is the type that is there, "" for none."""
    return (
        f"YAML for AL2023 must be a {kind} of {api_version}, or nodes would not join; found {said or 'neither apiVersion nor kind'}. Put other "
        "content into a MIME part of its own type, such as text/cloud-config"
    )


def node_config_refused(problem: str) -> str:
    return f"nodeadm refuses the NodeConfig, and nodes would not join: {problem}"


def unknown_node_config_field(field: str) -> str:
    """A warning; `field` is a path and what is wrong with it."""
    return f"NodeConfig {field}; nodeadm ignores it, unless the image has a newer one that knows it"


# userdata/unread.py
ONLY_THE_FIRST_DOCUMENT: Final = "nodeadm reads only the first YAML document; remove the --- behind it and what follows, or use a MIME part for each NodeConfig"
NODE_CONFIG_ON_AL2: Final = "AL2 images do not read NodeConfigs; use spec.kubelet, or an image of AL2023"
YAML_AS_SCRIPT: Final = "the YAML is run as a shell script; use NodeConfigs with AL2023 only, and put cloud-config into a MIME part of type text/cloud-config"
SCRIPT_WITHOUT_INTERPRETER: Final = (
    "the shell script is not run, because it does not begin with #!; add #!/bin/bash as its first line"
)
PLAIN_TEXT: Final = (
    "a MIME part of type text/plain is not read unless it begins with #! or #cloud-config; set its Content-Type"
)
BEHIND_THE_LAST_PART: Final = (
    "what follows the end of the MIME document is not read; only the last delimiter may end with --"
)
OUTSIDE_OF_TAGS: Final = "text outside of <powershell> and <script> is not run; move it into one of them"


def outside_settings(names: str) -> str:
    """A warning; `names` are keys and tables."""
    return f"Bottlerocket reads nothing but settings, and these are left out: {names}; find the settings at https://bottlerocket.dev"


def part_of_unknown_type(kind: str) -> str:
    """A warning."""
    return f"cloud-init does not read MIME parts of type {kind}"


def tags_are_merged(names: str) -> str:
    """A warning; `names` are tags."""
    return (
        f"the script that joins the node is run with the same tags ({names}), after the user's; PowerShell needs no tags here, and "
        "<persist> runs both at every boot"
    )


# userdata/bottlerocket.py
SETTINGS_ARE_NO_TABLE: Final = "settings is not a table"
NODE_LABELS_ARE_NO_TABLE: Final = "settings.kubernetes.node-labels is not a table"


def not_toml(error: object) -> str:
    return f"not valid TOML: {error}"


INTEGER_TOO_LONG: Final = "an integer does not fit into 64 bits"
TOML_NESTED_TOO_DEEPLY: Final = "the TOML is nested too deeply"


def setting_is_no_table(name: str) -> str:
    return f"settings.{name} is not a table"


# userdata/mime.py


def mime_not_ended(boundary: str) -> str:
    return f"the multipart MIME document does not end with --{boundary}--"


MIME_WITHOUT_TYPE: Final = "the MIME document has no Content-Type"


def mime_not_multipart(content_type: str) -> str:
    return f"the MIME document is {content_type}, not multipart"


MIME_WITHOUT_BOUNDARY: Final = "the multipart MIME document names no boundary"


def mime_headers_unreadable(error: object) -> str:
    return f"the headers of the MIME document cannot be read: {error}"


BOUNDARY_MALFORMED: Final = "the boundary parameter is malformed"


def header_too_long(limit: int) -> str:
    """Why `mime_headers_unreadable`."""
    return f"a header is longer than {limit} characters"


# userdata/contradictions.py


def differs_from_the_cluster(where: str, what: str, value: str, ours: str) -> str:
    return f'{where} has the {what} "{value}", that of this cluster is "{ours}"'


def other_than_the_cluster(where: str, what: str) -> str:
    return f"{where} has another {what} than this cluster"


# launch_marks.py


def not_a_launch_mark(text: str) -> str:
    return f"{text!r} is not <batch>/<attempt>/<ordinal>"


def attempt_below_one(text: str) -> str:
    return f"{text!r}: the attempt must be 1 or more"
