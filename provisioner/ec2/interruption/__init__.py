"""What AWS announces: interruption queue, messages, health events, zonal shift.

An interruption is an annotation on the claim, written before the message is deleted.
"""
