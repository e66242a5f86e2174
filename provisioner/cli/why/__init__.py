"""`dovetail why`: what a fresh look at the cluster would decide, and for what reasons."""
