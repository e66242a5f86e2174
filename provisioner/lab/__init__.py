"""What developers run: the development cluster, the demo, the benchmarks, and what writes manifests and docs/reference from the code.

It is in neither the wheel nor the image, and nothing of the product imports it: `cli.main` names its commands, which are not listed where it is not installed.
"""
