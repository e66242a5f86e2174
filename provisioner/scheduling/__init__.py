"""Where may pods run, on which nodes, and why does a pod have none? The only judge of what may run where.

Pure without exception: a question in, an answer out; the same question has the same answer.
"""
