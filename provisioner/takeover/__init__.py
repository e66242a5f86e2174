"""How a cluster comes from Karpenter, or from Cluster Autoscaler with managed node groups, to Dovetail: what stands in the way, which step is next.

`gathering` reads a cluster, or what was dumped of one, into `takeover_input`; `checking` says what is found, `advance` and `group_moves` which step is next,
`node_groups` what a group becomes. `starting` and `group_draining` carry steps out, each safe to interrupt: where they stand is in ConfigMaps. The room
ends no instance, deletes no NodeClaim and never writes an object that another autoscaler owns, but a managed node group with --apply-aws.
"""
