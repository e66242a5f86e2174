"""Which certificate does each server and client present, and when is it renewed?

Owns the authority, its Secrets, and the caBundles that name it. Knows no controller.
"""
