"""Every `ros2` command of the README and of docs/ros.md, run with the real `ros2`.

Source a ROS 2 and this package first, then run this file with any pytest. It starts the graph
with the documented launch command and gives it the others, in the order of the documents. With
LPGFTW_TRANSCRIPT=FILE all commands, answers and exit codes are written there.
"""

from pathlib import Path
import re
import shutil
import signal
import subprocess
import tempfile

import pytest

from .shell import needs_ros2, PATIENCE, record, Shell

ROOT = Path(__file__).resolve().parents[2]
PAGES = ('README.md', 'docs/ros.md')
GRAPH = 'ros2 launch lpgftw_ros lifelong.launch.py suite:=demo'
INTERRUPTED = (0, 1, 2, 130, -signal.SIGINT)
"""What ros2cli exits with after Ctrl-C; it differs by command."""
STREAMS = re.compile(
    r'ros2 (topic (echo(?!.*--once)|hz)|action send_goal --feedback|bag|run'
    r'|launch(?!.*--show-args))'
)
"""Commands that go on until Ctrl-C; the others end by themselves."""
pytestmark = needs_ros2


def documented():
    """Return the commands of all pages in their order, each once."""
    found = {}
    for page in PAGES:
        text = (ROOT / page).read_text().replace('\\\n', ' ')
        for line in re.findall(r'^(?:    )?(ros2 [^\n]*)', text, re.M):
            found.setdefault(re.sub(r'\s+#.*', '', line).strip(), page)
    return [command for command in found if command != GRAPH]


def has(command):
    """Return whether the tool of a command is installed: rosbag2 is a package of its own."""
    verbs = subprocess.run(['ros2', '--help'], capture_output=True, text=True, check=False).stdout
    return re.search(rf'^\s+{command.split()[1]}\s', verbs, re.M) is not None


@pytest.fixture(scope='module')
def graph(tmp_path_factory):
    """The graph of the README, until the last command has been run."""
    shell = Shell(tmp_path_factory.mktemp('user'))
    launch = shell.start(GRAPH)
    try:
        assert launch.until('iteration 1', 2.0 * PATIENCE), launch.output
        # the first ros2 command starts a daemon, which answers before it has found anything
        assert launch.until(lambda: shell.start('ros2 node list').until('/lifelong/learner', 10.0))
        yield shell
    finally:
        code = launch.interrupt()
    record(f'$ {GRAPH}\n{launch.output[-3000:].rstrip()}\n[rc {code} after Ctrl-C]\n')
    assert code == 0


SAID = {
    'launch': r'learner\]: active|policies from',
    'run': r'\bactive\b|waiting|new run|already',
    'topic': r'\S[^\n]*\n[^\n]*\n',
    'action': r'Feedback:|Result:|rejected',
    'bag': r'Recording|Opened|Listening',
}


@pytest.mark.parametrize('command', documented() if shutil.which('ros2') else ['ros2'])
def test_the_documented_command_works(graph, command):
    if not has(command):
        pytest.skip(f'no "ros2 {command.split()[1]}" here')
    verb = command.split()[1]
    if verb in ('launch', 'run'):  # beside the graph of this test, not instead of it
        command = prepared(command, graph.folder)
    code, output, interrupted = graph.run(
        command, PATIENCE, SAID[verb] if STREAMS.match(command) else ''
    )
    assert output.strip(), 'it says nothing'
    assert 'Traceback' not in output, output
    if STREAMS.match(command):
        assert re.search(SAID[verb], output), output
        assert code in INTERRUPTED
    else:
        assert not interrupted, output
        assert code == 0, output


def prepared(command, folder):
    """Give a second graph a namespace and a run folder of its own, or a policy that is there."""
    command = command.replace('/lifelong', '/second').replace('RUN_ID', 'replayed')
    out = f'out:={tempfile.mkdtemp(dir=folder)}'
    command = re.sub(r'out:=\S+', out, command)
    run = next(iter(sorted(folder.glob('runs/*'))), folder)
    command = re.sub(r'policy_from:=\S+', f'policy_from:={run}', command)
    if ' launch ' in command and '--show-args' not in command:
        command += ' namespace:=/second'
        if 'lifelong.launch' in command and 'out:=' not in command:
            command += f' {out}'
    return command
