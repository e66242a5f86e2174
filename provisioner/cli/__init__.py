"""The `dovetail` command, and those of its subcommands that users run; none of them changes anything.

`plan` asks the planning process as the provisioner does; `why` asks the leader through a port-forward.
"""
