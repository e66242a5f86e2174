"""Is there a cheaper fleet for the same pods, and what must any fleet cost? The planning process: `python -m provisioner.packing`.

Owns the cost planner and the process around it. Only the planning process loads numpy and the solver of linear programs;
other processes load `planner`, `process`, `protocol` and `confinement`.
"""
