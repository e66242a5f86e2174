"""Where does a day come from? From settings and a seed, from a published trace, or from what was recorded.

Owns the generator (`generator.py`), one module for each trace whose schema is published, and what becomes of a history (`records.py`). Each makes a `Day` of
values that are given to it: whoever calls opens files. Pure without exception; simulates nothing.
"""
