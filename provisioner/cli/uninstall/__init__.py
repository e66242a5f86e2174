"""`dovetail uninstall`: leave a cluster without losing pods or nodes."""
