"""Which Nodes does kwok play? A provider whose instances are Node objects."""
