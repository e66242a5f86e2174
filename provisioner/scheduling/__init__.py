"""Where may pods run, on which nodes, and why does a pod have none? The only judge of what may run where.

Pure without exception: a question in, an answer out; the same question has the same answer.

`world.py` makes what is asked about of a snapshot, `prepared.py` is asked, any number of times: `attempts` place pods by the rules of `constraints` and
`topology` into what `capacity` offers, and `improvement` looks for a better answer before anything is bought.
"""
