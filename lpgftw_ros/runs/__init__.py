"""The lifelong loop and its run folder.

`lifelong.py` says what to sample next, `session.py` takes rollouts and decides when to save,
`folder.py` and `checkpoints.py` write and read.
"""
