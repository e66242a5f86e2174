"""The real controllers in one process, one step at a time: which thread goes on, what fails, what is late, and who leads follows from a seed.

`python -m tests.interleaving --seeds 0:10000` plays as many interleavings; `--mutant NAME` plays them with a defect, which must be caught.

    threads    the locks, conditions, events and threads of Python, of which one runs at a time, and a clock that moves when nothing can
    server     an API server in memory: versions, preconditions, finalizers, watches, evictions; requests that fail before or after effect
    place      what is around us: kubelets, kube-scheduler, ReplicaSets, PodDisruptionBudgets, users
    gangs      a market that runs out, and what must hold of gangs
    process    one provisioner: caches, controllers, its right to lead, its death
    oracle     what must hold after every write, and in the end
    play       one interleaving
    mutants    defects, by name
"""
