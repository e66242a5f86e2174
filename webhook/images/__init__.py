"""For which architectures the images of pods were built, asked of their registries behind the admission path.

Loaded only with `--image-registries` or `--image-ecr-accounts`. `references`, `documents` and `trust` are pure.

A review asks `lookups` what is known; what is not is looked up behind the answer, and the pod is labelled, perhaps gated. `marked` watches the label and writes
the answer on the pod; `provisioner/apis/pods.py` makes it part of the pod's class, and the state gives up a place that was planned before.
"""
