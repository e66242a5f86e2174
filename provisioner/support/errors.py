"""The one error that a person in front of the command line can cure."""


class UserError(Exception):
    """Something that the user can cure; the message is one sentence. The command line prints it and exits with status 1."""
