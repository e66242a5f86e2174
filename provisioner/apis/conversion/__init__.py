"""What does an object of an old API version become, and what becomes of it on the way back?

v1beta1 is converted in both directions without loss (`beta.py`), older kinds are translated in one (`alpha.py`). Carried out by the webhook,
`provisioner/ec2/translation_controller.py` and `dovetail convert`. Pure.
"""
