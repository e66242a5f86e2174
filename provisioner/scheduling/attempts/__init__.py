"""How are all pods of a question placed, once, and how often is that tried?

Owns the order of choices, places while they are filled, and the reasons of what is left.
"""
