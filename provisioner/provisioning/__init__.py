"""When are pods that wait planned, and what becomes of the plan?

Owns the batch, the worlds that scheduling is asked about, and what is told of pods that wait. Which pods wait is `state.waiting`'s answer, where they go
`scheduling`'s.
"""
