"""For which architectures the images of pods were built, asked of their registries behind the admission path.

Loaded only with `--image-registries` or `--image-ecr-accounts`. `references`, `documents` and `trust` are pure.
"""
