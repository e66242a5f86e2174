"""Is there a better answer than the first one: cheaper, balanced, and giving up no wish that was granted?

Owns which of two answers is taken. What an answer may be is judged by `prepared`.
"""
