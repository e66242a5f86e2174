"""A real control plane on this machine. The library is `provisioner.lab.devcluster.cluster.DevCluster`.

Imports nothing: the reaper, which idles beside every temporary cluster, loads only what it needs.
"""
