"""All tests: the arithmetic of runs, before any test loads numpy; pictures without a screen."""

import os

import lpgftw_ros  # noqa: F401

if not os.environ.get('DISPLAY'):  # read when MuJoCo is imported
    os.environ.setdefault('MUJOCO_GL', 'egl')
