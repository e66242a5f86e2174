"""The image, built without a container engine: `make image` and the Dockerfile run `steps.build`, and nothing else decides what is in it.

`debian` brings the interpreter and its libraries, `wheels` what the project needs and the project itself, `contents` says what of both is left out and why;
`layout` writes layers, configuration and index as an OCI image layout, `sbom` what is in them. All that comes from outside is named with its hash:
`base.json` (Debian), requirements.txt and building.txt and sbom.txt (PyPI); `make lock` writes all four.
Python's own modules suffice, so that any Python 3.11 can run this.
"""
