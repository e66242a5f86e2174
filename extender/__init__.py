"""The scheduler extender: carries the plan into kube-scheduler.

It may use provisioner.state and below, never the deciders (scheduling, disruption) or the controllers.
"""
