"""How many files a reader has to open to follow one call."""

from pathlib import Path
import subprocess
import sys

SCRIPT = Path(__file__).parents[2] / 'files_entered.py'


def test_a_policy_step_and_a_checkpoint_stay_within_six_files_each():
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=True)
    print(done.stdout)
    counts = {
        line.split(':')[0]: int(line.split(': ')[1].split()[0])
        for line in done.stdout.splitlines()
    }
    assert set(counts) == {'improve', 'checkpoint'}
    assert 3 <= counts['improve'] <= 6
    assert 3 <= counts['checkpoint'] <= 6
