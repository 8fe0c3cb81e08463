"""Graphs in two namespaces of one domain do not disturb each other."""

from pathlib import Path

import pytest

from .lifelong_graph import metrics, options, train, write_suite

pytestmark = [pytest.mark.ros, pytest.mark.slow]


def test_two_namespaces_on_one_domain(start, tmp_path: Path) -> None:
    suite = write_suite(tmp_path)
    train(options(suite, tmp_path / 'train'))
    ups = [
        start('--namespace', f'/cell_{i}', *options(suite, tmp_path / f'up{i}')) for i in (1, 2)
    ]
    for i, up in enumerate(ups, start=1):
        assert up.process.wait(240) == 0, up.output
        assert metrics(tmp_path / f'up{i}') == metrics(tmp_path / 'train')
