"""`lpgftw bench arithmetic`: the benefit and the cost of pinned arithmetic.

Two parts. The table trains a few iterations on every combination of OpenBLAS kernel, numpy
dispatch level and C library dispatch that this processor can imitate, native and pinned. Native
numbers fall into groups; pinned ones must all be the same. The cost is the time of learning
(policy steps, value fits, knowledge updates) and of sampling, pinned over native, in turns.
"""

import argparse
from collections.abc import Mapping
import hashlib
from itertools import product
import json
import os
from pathlib import Path
import subprocess
import sys
import tempfile
from typing import Any

from lpgftw_ros import arguments
from lpgftw_ros.arithmetic import CHOICE, PINS, processor_flags
from lpgftw_ros.errors import LpgftwError

KERNELS = {'SkylakeX': 'avx512f', 'Haswell': 'avx2', 'Sandybridge': 'avx', 'Nehalem': 'sse4_2'}
"""Kernels of OpenBLAS and the processor flag each needs: without it, it ends in a signal."""
DISPATCH = {
    'all': '',
    'X86_V3': PINS['NPY_DISABLE_CPU_FEATURES'],
    'X86_V2': 'X86_V3 ' + PINS['NPY_DISABLE_CPU_FEATURES'],
}
C_LIBRARY = {'all': '', 'avx2': 'glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW,-AVX512DQ'}
"""The second differs from the first only on a processor with AVX-512."""
TASKS = {'halfcheetah-gravity': 'gravity-15', 'mt10': 'reach'}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument('--json', action='store_true', help='print one JSON object')
    parser.add_argument(
        '--rounds', type=arguments.count, default=5, help='turns of each contestant'
    )
    parser.add_argument(
        '--iterations', type=arguments.count, default=2, help='policy steps per run'
    )
    parser.add_argument('--no-table', action='store_true', help='measure only the cost')


def run(args: argparse.Namespace) -> int:
    """Print the table and the cost; fail if pinned numbers differ."""
    results: dict[str, Any] = {'cost': {s: cost(s, args.rounds) for s in TASKS}}
    if not args.no_table:
        results['table'] = [row for suite in TASKS for row in table(suite, args.iterations)]
    pinned = {(row['suite'], row['pinned']) for row in results.get('table', ())}
    results['equal'] = len(pinned) <= len(TASKS)
    print(json.dumps(results, indent=2) if args.json else _text(results))
    return 0 if results['equal'] else 1


def table(suite: str, iterations: int) -> list[dict[str, str]]:
    """Return the digest of a short run for every imitated computer, native and pinned."""
    rows = []
    for kernel, dispatch, library in product(KERNELS, DISPATCH, C_LIBRARY):
        if library != 'all' and 'avx512f' not in processor_flags():
            continue
        computer = {
            'OPENBLAS_CORETYPE': kernel,
            'NPY_DISABLE_CPU_FEATURES': DISPATCH[dispatch],
            'GLIBC_TUNABLES': C_LIBRARY[library],
        }
        found = {'native': 'not on this processor'}
        for choice in ('native', 'pinned'):
            if choice == 'pinned' or KERNELS[kernel] in processor_flags():
                found[choice] = trained(suite, iterations, {**computer, CHOICE: choice})[0]
        rows.append(
            {'suite': suite, 'kernel': kernel, 'numpy': dispatch, 'libc': library, **found}
        )
    return rows


def cost(suite: str, rounds: int) -> dict[str, float]:
    """Return the time of learning and sampling, pinned over native: best of several turns."""
    best: dict[tuple[str, str], float] = {}
    for _ in range(rounds):
        for choice in ('native', 'pinned'):
            for phase, seconds in trained(suite, 8, {CHOICE: choice})[1].items():
                key = choice, phase
                best[key] = min(best.get(key, seconds), seconds)
    phases = ('learning', 'sampling')
    ratios = {phase: best['pinned', phase] / best['native', phase] for phase in phases}
    total = sum(best['pinned', p] for p in phases) / sum(best['native', p] for p in phases)
    return {'ratio': total, **ratios}


def trained(
    suite: str, iterations: int, environment: Mapping[str, str]
) -> tuple[str, dict[str, float]]:
    """Train one task in a process of its own; return a digest of its rows and its times."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, '-m', 'lpgftw_ros.cli', 'train', '--suite', suite]
        command += ['--tasks', TASKS[suite], '--iterations', str(iterations), '--out', folder]
        chosen = {name: value for name, value in environment.items() if value}
        inherited = {k: v for k, v in os.environ.items() if k not in (*PINS, CHOICE)}
        done = subprocess.run(
            command, env={**inherited, **chosen}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise LpgftwError(f'training {suite} failed: {done.stderr.strip()[-300:]}')
        rows = [json.loads(line) for line in (Path(folder) / 'metrics.jsonl').open()]
    digest = hashlib.sha256()
    seconds = {'learning': 0.0, 'sampling': 0.0}
    for row in rows:
        timing = row.pop('timing')
        digest.update(json.dumps(row).encode())
        seconds['sampling'] += timing['sampling']
        seconds['learning'] += sum(timing[phase] for phase in ('policy', 'value', 'knowledge'))
    return digest.hexdigest()[:12], seconds


def _text(results: Mapping[str, Any]) -> str:
    lines = [f'{"suite":<22}{"kernel":<13}{"numpy":<8}{"libc":<6}{"native":<24}pinned']
    for row in results.get('table', ()):
        lines.append(
            f'{row["suite"]:<22}{row["kernel"]:<13}{row["numpy"]:<8}{row["libc"]:<6}'
            f'{row["native"]:<24}{row["pinned"]}'
        )
    for suite, ratios in results['cost'].items():
        parts = ', '.join(f'{name} {value:.3f}' for name, value in ratios.items())
        lines.append(f'cost on {suite}, pinned over native: {parts}')
    return '\n'.join(lines)
