"""How do the pods of one class come into places, as many at a time as the class allows?

What a class does not use costs it nothing: without relations to other pods it is filled into the first places that take
it; with them, domains are chosen first (emptiest first for spread), then the places in them.

A claim on which a pod of some count is put gets its domain settled, so what is counted is also what will be. Hostname
spread takes the emptiest node as empty until `late` looks at the true number, once all other claims are open.

`place_table.py` is what the others share; `class_candidates.py` says where one more pod may go, `companions.py` which daemons keep it away, `domain_prices.py`
what a new node costs, and `filler.py` puts pods there, for `domain_spreading.py` and then `hostname_spreading.py`.
"""
