"""`dovetail plan`: what a fleet would cost, from files or a live cluster, without changing anything."""
