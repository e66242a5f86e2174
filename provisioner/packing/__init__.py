"""Is there a cheaper fleet for the same pods, and what must any fleet cost? The planning process: `python -m provisioner.packing`.

Owns the cost planner and the process around it. Only the planning process loads numpy and the solver of linear programs;
other processes load `planner`, `process`, `protocol` and `confinement`.

The process starts while ten pods or more gather, and ends after 30 s without a question; consolidation has one of its own. It is told what has changed, and
nodes without their pods. `Prepared.settle` judges what it proposes in the whole world. If it is late, has ended or is wrong, the solver's plan is launched.
"""
