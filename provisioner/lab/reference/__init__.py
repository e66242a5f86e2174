"""`dovetail reference`: docs/reference, written from the code."""
