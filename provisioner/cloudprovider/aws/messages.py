"""Texts that `cloudprovider/aws` publishes, by the module that does; docs/reference/messages.md is generated from them."""

from typing import Final

# queue.py
FAILED_TO_DELETE_QUEUE_MESSAGE: Final = "Failed to delete a queue message; it will be delivered again"
