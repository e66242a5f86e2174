"""Values without a cluster: quantities, resources, requirements, taints, durations, schedules, texts, and what a command ends with.

Pure, and knows no Kubernetes object.
"""
