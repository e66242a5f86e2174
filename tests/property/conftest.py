"""Profiles: `fast` unless HYPOTHESIS_PROFILE says otherwise."""

import os

from hypothesis import settings

settings.register_profile("fast", max_examples=50, derandomize=True, deadline=None, database=None)
settings.register_profile("thorough", max_examples=2000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))
