"""What the numbers of a run depend on besides its settings: libraries, BLAS, processor."""

from collections.abc import Mapping
from functools import lru_cache
from importlib import metadata
import os
import platform
import sys
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from lpgftw_ros import __version__, ARITHMETIC
from lpgftw_ros.arithmetic import THREAD_VARIABLES

_PACKAGES = ('numpy', 'scipy', 'torch', 'gymnasium', 'mujoco', 'metaworld')


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Return the versions of this package, Python and the numerical libraries."""
    found = {'lpgftw_ros': __version__, 'python': platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = 'not installed'
    return found


def library_fingerprint() -> dict[str, Any]:
    """Return versions, BLAS builds and processor features; equal ones give equal bytes."""
    blas = sorted(
        f'{pool["prefix"]} {pool.get("version")} {pool.get("architecture", "")}'.strip()
        for pool in threadpool_info()
        if pool['user_api'] == 'blas'
    )
    extensions = np.show_config(mode='dicts')['SIMD Extensions']  # type: ignore[index]
    return {
        'versions': versions(),
        'arithmetic': ARITHMETIC,
        'blas': blas,
        'libc': ' '.join(platform.libc_ver()),
        'machine': platform.machine(),
        'cpu_features': sorted(extensions.get('found', ())),
    }


def fingerprint_differences(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return one line per item in which two fingerprints differ; none if nothing was saved."""
    lines = []
    for key in now if saved else ():
        before, after = saved.get(key), now[key]
        if before == after:
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            changed = [n for n in before | after if before.get(n) != after.get(n)]
            lines += [f'{name} was {before.get(name)}, is {after.get(name)}' for name in changed]
        else:
            lines.append(f'{key} was {before}, is {after}')
    return lines


def limit_threads(count: int) -> None:
    """Give BLAS and torch a fixed number of threads: their results depend on it.

    numpy and scipy each bring a BLAS; one that is loaded later reads the environment.
    """
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(count)))
    threadpool_limits(limits=count)
    if 'torch' in sys.modules:
        sys.modules['torch'].set_num_threads(count)
