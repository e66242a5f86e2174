"""How is a disruption that was decided carried out, step by step, whoever leads?

Owns the records of commands on NodeClaims and the next step of each. Does not choose nodes.

A command is written on its first candidate before anything of it is done; what comes next follows from the record and the objects alone, so a new leader goes
on with it: `queue.py` acts, `inspector.py` gathers, `progress.py` says the next step and `validation.py` whether the candidates may still go; `book.py` is what
this process alone remembers. Every node that was chosen is closed before the first pod of a command goes.
"""
