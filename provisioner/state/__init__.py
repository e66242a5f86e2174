"""What is known of the cluster, and what was promised to whom? One lock, one frozen snapshot for whoever decides.

Owns what the watches have told, plans, assignments and commands. No I/O; effects are carried out by whoever caused them.
"""
