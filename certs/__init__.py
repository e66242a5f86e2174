"""Which certificate does each server and client present, and when is it renewed?

Owns the authority, its Secrets, and the caBundles that name it. Knows no controller.

Every step follows from the Secrets alone: `mutual.py` writes those of both ends of reports in steps that kubelets can follow, `rotation.py` keeps the webhook's
by a watch and the record of what each replica serves. The ends read files.
"""
