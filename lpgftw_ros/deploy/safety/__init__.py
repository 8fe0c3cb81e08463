"""The rules between a policy and an arm.

`motion.py` keeps a motion within its limits, `watch.py` judges what is measured, `guard.py`
decides, `limits.py` checks the limits themselves, `report.py` says what was found.
"""
