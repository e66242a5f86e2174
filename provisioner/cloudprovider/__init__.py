"""What does Dovetail ask of a cloud? The seam, what wraps every provider, and kwok.

Owns instance types, offerings and the errors of launches as values. Knows no controller.
"""
