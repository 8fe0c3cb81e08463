"""The lifelong loop and its run folder."""
