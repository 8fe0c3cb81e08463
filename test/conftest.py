"""All tests: the arithmetic of runs, pinned before any test loads numpy."""

import lpgftw_ros  # noqa: F401
