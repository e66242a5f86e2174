"""The `dovetail` command and its subcommands."""
