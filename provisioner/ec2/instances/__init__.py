"""The instances of the cluster: describe, end, tag, adopt, orphans, drift."""
