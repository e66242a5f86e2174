"""What a class's selectors find at AWS, and what of the cluster its instances have to know.

One module a kind. Each says what to ask (pure), reads the answers, and judges them (pure); `discovery.Discovery` does the asking. What was found is
kept when a later call fails: a failure never takes away what works.
"""
