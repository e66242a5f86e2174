"""Shared by the demo, the cluster benchmarks and their tests: programs, workloads, observing, figures."""
