"""What does a pod demand, by itself?

Owns classes of pods, and what their filters, ports, volumes and selectors mean.
"""
