"""The scheduler extender: carries the plan into kube-scheduler.

It may use provisioner.state and below, never the rooms above it, which decide and act.
"""
