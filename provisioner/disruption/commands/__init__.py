"""How is a disruption that was decided carried out, step by step, whoever leads?

Owns the records of commands on NodeClaims and the next step of each. Does not choose nodes.
"""
