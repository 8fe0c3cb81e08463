"""The thread that runs rollouts, and the processes it starts."""

from concurrent.futures import ThreadPoolExecutor
import subprocess
import sys

from lpgftw_ros.nodes.bridge import keep_from_interrupts

INTERRUPTED = 'import os, signal; os.kill(os.getpid(), signal.SIGINT); print("goes on")'


def test_ctrl_c_does_not_reach_processes_that_libraries_start():
    with ThreadPoolExecutor(1, initializer=keep_from_interrupts) as worker:
        words = [sys.executable, '-c', INTERRUPTED]
        said = worker.submit(subprocess.check_output, words, text=True).result()
    assert said == 'goes on\n'
