"""Texts that `webhook` publishes, by the module that does; docs/reference/messages.md is generated from them."""

from typing import Final

# app.py
FAILED_TO_READ_ADMISSION_REVIEW: Final = "Failed to read an admission review; the object was admitted unchanged"
FAILED_TO_READ_POD: Final = "Failed to read a pod; it was admitted unchanged"
FAILED_TO_PROCESS_ADMISSION_REVIEW: Final = "Failed to process an admission review; the pod was admitted unchanged"
