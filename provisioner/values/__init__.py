"""Values without a cluster: quantities, resources, requirements, taints, durations, schedules, texts.

Pure, and knows no Kubernetes object.
"""
