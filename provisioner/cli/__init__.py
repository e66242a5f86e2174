"""The `dovetail` command, and those of its subcommands that users run; only `uninstall`, `takeover start` and `takeover back` change anything.

`plan` asks the planning process as the provisioner does; `why` asks the leader through a port-forward.
"""
