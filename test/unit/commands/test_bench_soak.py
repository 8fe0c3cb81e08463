"""What a long-running graph holds: read from the kernel, compared, drawn."""

import os
from pathlib import Path
import subprocess
import sys

import pytest

from lpgftw_ros.bench.soak import draw, growth, look, text
from lpgftw_ros.errors import LpgftwError

HOLDER = """
import sys, threading
block = bytearray(60_000_000)
files = [open('/dev/null') for _ in range(40)]
threading.Thread(target=sys.stdin.read).start()
print('ready', flush=True)
"""


def _samples(pss: list[float]) -> list[dict[str, object]]:
    held = [{'pss': value, 'rss': value, 'descriptors': 20.0, 'threads': 3.0} for value in pss]
    return [
        {'seconds': 10.0 * number, 'processes': {'policy': one}} for number, one in enumerate(held)
    ]


def test_memory_descriptors_and_threads_of_a_child_are_seen() -> None:
    command = [sys.executable, '-c', HOLDER, 'lpgftw_ros.nodes.policy']
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b'ready\n'
        held = look(os.getpid())['policy']
    finally:
        child.communicate()
    assert held['pss'] > 55.0
    assert held['descriptors'] >= 43
    assert held['threads'] == 2
    assert 'policy' not in look(os.getpid())


def test_growth_is_counted_after_the_graph_has_settled() -> None:
    found = growth(_samples([10.0, 50.0, 100.0, 100.0, 104.0, 110.0]), settle=20.0)
    assert found['policy']['growth'] == {
        'pss': pytest.approx(0.07),
        'descriptors': 0,
        'threads': 0,
    }
    assert '+7.0%' in text(found)


def test_a_soak_that_is_too_short_says_so() -> None:
    with pytest.raises(LpgftwError, match='too short: fewer than two samples after 1800 s'):
        growth(_samples([1.0, 1.0]), settle=1800.0)


def test_it_is_drawn(tmp_path: Path) -> None:
    draw(_samples([1.0, 2.0, 3.0]), tmp_path / 'soak.png')
    assert (tmp_path / 'soak.png').stat().st_size > 10_000
