import os
from pathlib import Path
import signal
import subprocess
import sys
import time

import pytest

from lpgftw_ros.graph.supervisor import Command, Supervisor


def command(code, name='one', **options):
    return Command(name, [sys.executable, '-S', '-c', code], {}, **options)


def run(*commands, each_turn=lambda supervisor: None, **options):
    lines = []
    supervisor = Supervisor(commands, lambda name, line: lines.append((name, line)), **options)
    code = supervisor.run(lambda: each_turn(supervisor))
    return code, lines


def gone(pid):
    return not Path(f'/proc/{pid}').exists()


def test_each_line_carries_the_name_of_its_process():
    code, lines = run(command('print("a\\nb")'), command('print("c", end="")', 'two'))
    assert code == 0
    assert sorted(lines) == [('one', 'a'), ('one', 'b'), ('two', 'c')]


def test_a_crash_is_started_again(tmp_path):
    mark = tmp_path / 'mark'
    crash_once = f'import os, sys; p = {str(mark)!r}; new = not os.path.exists(p)\n'
    crash_once += 'open(p, "w").close(); sys.exit(7 if new else 0)'
    code, lines = run(command(crash_once))
    assert code == 0
    assert ('one', 'ended with 7: starting again in 0.25 s') in lines


def test_repeated_crashes_end_the_graph_with_failure():
    code, lines = run(command('import sys; sys.exit(7)'), max_crashes=1)
    assert code == 1
    assert lines[-1] == ('one', 'ended with 7 2 times in a row: giving up')


def test_waits_between_restarts_grow():
    _, lines = run(command('import sys; sys.exit(7)'), max_crashes=3)
    waits = [line.split(' in ')[1] for _, line in lines if 'again in' in line]
    assert waits == ['0.25 s', '0.5 s', '1 s']


def test_wrong_settings_are_not_tried_again():
    code, lines = run(command('import sys; sys.exit(2)'), command('import time; time.sleep(60)'))
    assert code == 2
    assert ('one', 'ended with 2: not started again') in lines


def test_without_respawn_a_crash_ends_the_graph():
    code, _ = run(command('import sys; sys.exit(7)', respawn=False))
    assert code == 1


def test_the_end_of_the_last_task_ends_all():
    code, _ = run(
        command('', ends_all=True), command('import time; time.sleep(60)', 'two', respawn=True)
    )
    assert code == 0


def test_a_process_that_ignores_the_stop_is_killed(monkeypatch):
    monkeypatch.setattr('lpgftw_ros.graph.supervisor.STOP_TIME', 0.3)
    stubborn = 'import signal, time; signal.signal(2, signal.SIG_IGN); print("up", flush=True)\n'
    stubborn += 'time.sleep(60)'
    lines, pids = [], []

    def say(name, line):
        lines.append(line)
        if line == 'up':
            pids.extend(supervisor.pids.values())
            supervisor.stop(0)

    supervisor = Supervisor([command(stubborn)], say)
    supervisor.run()
    assert 'did not end in time: killed' in lines
    assert gone(pids[0])


def test_children_of_a_killed_process_do_not_stay_behind(tmp_path):
    file = tmp_path / 'pid'
    parent = 'import subprocess, sys, os, time, signal\n'
    parent += 'c = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])\n'
    parent += f'open({str(file)!r}, "w").write(str(c.pid)); os.kill(os.getpid(), signal.SIGKILL)'
    run(command(parent), max_crashes=0)
    child = int(file.read_text())
    deadline = time.monotonic() + 5.0
    while not gone(child) and _state(child) != 'Z' and time.monotonic() < deadline:
        time.sleep(0.01)
    assert gone(child) or _state(child) == 'Z'


def _state(pid):
    try:
        return Path(f'/proc/{pid}/stat').read_text().split()[2]
    except FileNotFoundError:
        return 'Z'


@pytest.mark.parametrize(('number', 'code'), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_all_and_shows_in_the_exit_code(number, code):
    sleeper = command('import time; time.sleep(60)')
    sent = []

    def send(supervisor):
        if not sent:
            sent.append(supervisor.pids['one'])
            os.kill(os.getpid(), number)

    result, _ = run(sleeper, each_turn=send)
    assert result == code
    assert gone(sent[0])


def test_signal_handlers_are_put_back():
    before = signal.getsignal(signal.SIGTERM)
    run(command(''))
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_process_ends_when_the_one_that_started_it_is_killed():
    code = 'from lpgftw_ros.nodes.process import end_with_parent; import os, time\n'
    code += 'end_with_parent(); print(os.getpid(), flush=True); time.sleep(60)'
    starter = 'import os, subprocess, sys\n'
    starter += 'os.environ["LPGFTW_PARENT"] = str(os.getpid())\n'
    starter += f'subprocess.Popen([sys.executable, "-c", {code!r}]).wait()'
    parent = subprocess.Popen([sys.executable, '-c', starter], stdout=subprocess.PIPE, text=True)
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 10.0
    while not gone(child) and _state(child) != 'Z' and time.monotonic() < deadline:
        time.sleep(0.01)
    assert gone(child) or _state(child) == 'Z'
