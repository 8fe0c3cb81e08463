"""A package of somebody else that adds a kind of task."""
