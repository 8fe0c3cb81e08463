"""Nodes around an arm go before ordinary programs, where the system allows it."""

import json
import os
import subprocess
import sys

from lpgftw_ros.nodes import process

CODE = """
import json, os, threading
from lpgftw_ros.nodes.process import go_first
allowed, seen = go_first(7), []
thread = threading.Thread(target=lambda: seen.append(os.sched_getscheduler(0)))
thread.start(); thread.join()
print(json.dumps([allowed, seen[0] == os.SCHED_RR, os.sched_getparam(0).sched_priority]))
"""


def test_threads_started_later_have_the_priority_too() -> None:
    done = subprocess.run([sys.executable, '-c', CODE], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found in ([True, True, 7], [False, False, 0])
    assert ('no real-time priority' in done.stderr) is not found[0]


def test_a_refusal_is_told_and_changes_nothing(monkeypatch, capsys) -> None:
    def refuse(*args: object) -> None:
        raise PermissionError(1, 'Operation not permitted')

    monkeypatch.setattr(os, 'sched_setscheduler', refuse)
    assert not process.go_first(50)
    told = capsys.readouterr().err
    assert 'Operation not permitted' in told
    assert 'lpgftw doctor' in told


def test_no_priority_asks_for_nothing(monkeypatch) -> None:
    def asked(*args: object) -> None:
        raise AssertionError('the system was asked')

    monkeypatch.setattr(os, 'sched_setscheduler', asked)
    assert not process.go_first(0)
