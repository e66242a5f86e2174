"""The admission webhook: stamps well-known label requirements on new pods, and never stands in their way."""
