"""All tests: one BLAS thread, as runs have it; two on tiny matrices are many times slower."""

import os

for name in ('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'MKL_NUM_THREADS'):
    os.environ.setdefault(name, '1')
