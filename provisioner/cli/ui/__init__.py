"""`dovetail ui`: the live page of a cluster in a browser of this machine."""
