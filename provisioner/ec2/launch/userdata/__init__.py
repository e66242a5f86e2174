"""What an instance reads at its first boot: how it joins the cluster, and what the user wants beside that. Pure.

`rendering.render` writes it; each family has a module of its own. Equal inputs give equal bytes.
Source: AWS spec 2.3 to 2.7.
"""
