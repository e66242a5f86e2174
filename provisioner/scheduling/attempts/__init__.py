"""How are all pods of a question placed, once, and how often is that tried?

Owns the order of choices, places while they are filled, and the reasons of what is left.
`solution.py` chooses among attempts, `attempt.py` is one of them, over what `setting.py` holds for all; `placing/` has the pods of one class.
"""
