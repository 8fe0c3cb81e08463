"""What the numbers of a run depend on beside its configuration."""

import json
import os
import subprocess
import sys

import pytest
from threadpoolctl import threadpool_info

from lpgftw_ros.runs.environment import fingerprint_differences, library_fingerprint

SCRIPT = """
import json, sys
from threadpoolctl import threadpool_info
{before}
from lpgftw_ros.runs.environment import limit_threads
limit_threads(1)
import numpy, scipy.linalg, lpgftw_ros.learning.lpg_ftw
print(json.dumps([library['num_threads'] for library in threadpool_info()]))
"""


@pytest.mark.parametrize('before', ['', 'import scipy.linalg'], ids=['later', 'before'])
def test_threads_are_limited_whenever_a_library_is_loaded(before):
    names = ('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'MKL_NUM_THREADS')
    many = {**os.environ, **dict.fromkeys(names, '2')}
    script = SCRIPT.format(before=before)
    done = subprocess.run(
        [sys.executable, '-c', script], env=many, capture_output=True, text=True, check=True
    )
    threads = json.loads(done.stdout)
    assert len(threads) >= 2
    assert set(threads) == {1}


def test_a_fingerprint_names_every_blas_and_what_became_different():
    now = library_fingerprint()
    libraries = [pool for pool in threadpool_info() if pool['user_api'] == 'blas']
    assert len(now['blas']) == len(libraries) > 0
    assert all(any(pool['version'] in one for one in now['blas']) for pool in libraries)
    before = {**now, 'machine': 'abacus', 'versions': {**now['versions'], 'python': '2.7'}}
    assert fingerprint_differences(now, now) == fingerprint_differences({}, now) == []
    assert sorted(fingerprint_differences(before, now)) == [
        f'machine was abacus, is {now["machine"]}',
        f'python was 2.7, is {now["versions"]["python"]}',
    ]
