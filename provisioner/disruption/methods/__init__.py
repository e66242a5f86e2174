"""What would each method of disruption do now? A `DisruptionView` in, a `MethodAnswer` out.

Pure without exception; the improver of fleets is lent like the clock.
"""
