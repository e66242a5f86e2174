"""What would a day cost? The real controllers in virtual time, against an API server in memory.

Owns everything that is around them there: the clock, the API server, kube-scheduler, ReplicaSets and Jobs, kubelets, and the cloud. May not patch
anything: clock and threads are given to what it makes. Nothing but the command imports it.
"""
