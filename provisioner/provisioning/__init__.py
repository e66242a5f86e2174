"""When are pods that wait planned, and what becomes of the plan?

Owns the batch, the worlds that scheduling is asked about, and what is told of pods that wait. Which pods wait is `state.waiting`'s answer, where they go
`scheduling`'s.

`provisioner.py` runs: it gathers a `BatchQuestion` (`questions.py`), has it answered (`planning.py`), launches what limits allow, and tells what became of it
(`outcomes.py`, `telling.py`).

A batch window opens with a pod's ADDED event and closes after 1 s without a new pod, or after 10 s, less what the planner will take; sooner once all pods
that the owners of its pods want are there (`expected_pods.py`).
NodeClaims are named and told to the state before they are created in a pool of threads: the next batch plans around claims that are not written yet. NodeClaims
that certainly have no instance may be planned again with a later batch (`replanning.py`).
"""
