"""What `dovetail aws check` finds out: whether everything that the controllers need is there, and what to do where it is not."""
