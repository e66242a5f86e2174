"""The `dovetail` command, and those of its subcommands that users run; none of them changes anything."""
