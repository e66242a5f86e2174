"""What has happened in this cluster? A bounded history, for whoever looks back, and for whoever replays it.

Owns the entries (`entries.py`), how they stand in segments (`segments.py`), what becomes an entry (`tracker.py`, `decisions.py`), and who keeps them:
the leader in memory, `dovetail record` in files. Decides nothing, writes no object, and holds up nobody: it is told through a queue that forgets.

Who reads it needs `entries.py` for what there is, `read_segment` for bytes, `read_directory` for files, and `pod_classes.shape_of_class` to make pods of
a class again.
"""
