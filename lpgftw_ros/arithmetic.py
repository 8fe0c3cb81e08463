"""Pin the arithmetic, so that every computer gives the same bytes.

OpenBLAS picks a kernel for the processor it finds, numpy picks the widest vector instructions,
and both sum in an order that depends on the number of threads. A policy gradient run amplifies
the last bit within a few iterations. All of it is chosen when the libraries load, so `pin` only
sets environment variables and must run first: the package's `__init__` calls it.
"""

from collections.abc import Mapping, MutableMapping
from pathlib import Path
import platform
import sys
import warnings

CHOICE = 'LPGFTW_ARITHMETIC'
"""Environment variable: `pinned` (the default), or `native` for the computer's fastest kernels."""
PINS = {
    'OPENBLAS_CORETYPE': 'Haswell',
    'NPY_DISABLE_CPU_FEATURES': 'X86_V4 AVX512_ICL AVX512_SPR',
    'ATEN_CPU_CAPABILITY': 'avx2',
}
THREAD_VARIABLES = ('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'MKL_NUM_THREADS')
NEEDED = frozenset(('avx2', 'fma', 'bmi1', 'bmi2', 'f16c', 'movbe'))
"""Processor flags of numpy's level X86_V3, which the pins leave switched on."""
_CPUINFO = Path('/proc/cpuinfo')


def processor_flags(cpuinfo: Path = _CPUINFO) -> frozenset[str]:
    """Return the flags of the first processor; none if they cannot be read."""
    try:
        with cpuinfo.open(encoding='utf-8') as lines:
            for line in lines:
                if line.startswith('flags'):
                    return frozenset(line.partition(':')[2].split())
    except OSError:
        pass
    return frozenset()


def obstacle(environment: Mapping[str, str], flags: frozenset[str], machine: str) -> str:
    """Return why the arithmetic cannot be pinned here, or ''."""
    if machine not in ('x86_64', 'AMD64'):
        return f'the processor is {machine}, not x86-64'
    if not flags >= NEEDED:
        return f'the processor lacks {", ".join(sorted(NEEDED - flags))}'
    if 'numpy' in sys.modules and not PINS.items() <= environment.items():
        return 'numpy was loaded before lpgftw_ros'
    return ''


def pin(environment: MutableMapping[str, str]) -> str:
    """Set the pins for this process and its children; return `pinned` or why they are not set.

    A process that cannot be pinned warns once and leaves its children native too: a run with half
    of each arithmetic could not be repeated anywhere.
    """
    choice = environment.get(CHOICE, 'pinned')
    if choice not in ('pinned', 'native'):
        warnings.warn(f"{CHOICE} is '{choice}'; it may be pinned or native", stacklevel=3)
    if choice == 'native':
        return 'native'
    why = obstacle(environment, processor_flags(), platform.machine())
    if why:
        environment[CHOICE] = 'native'
        warnings.warn(
            f'the arithmetic is not pinned: {why}. Numbers may differ in their last bits from '
            f'those of other computers. {CHOICE}=native says that this is intended',
            stacklevel=3,
        )
        return f'native: {why}'
    environment.update(PINS)
    for name in THREAD_VARIABLES:
        environment.setdefault(name, '1')
    return 'pinned'
