"""Which planned pods would kube-scheduler bind as planned, and which may be nominated?

Owns the rules; who nominates is `lifecycle`.
"""
