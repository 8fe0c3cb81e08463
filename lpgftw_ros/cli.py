"""The `lpgftw` command: one module per sub-command, loaded only when it is called."""

import argparse
from collections.abc import Sequence
import importlib
import os
import sys

from lpgftw_ros import __version__
from lpgftw_ros.errors import LpgftwError, missing_extra

COMMANDS = {
    'train': 'learn a suite of tasks one after another, in this process',
    'learn': 'add tasks to a finished or stopped run',
    'evaluate': 'run the policies of a run folder',
    'knowledge': 'save, show or compare what runs have learned',
    'watch': 'show a run folder, live or finished, in the browser',
    'up': 'start the ROS 2 graph without the ros2 command',
    'ctl': 'look at a running graph and steer it, without the ros2 command',
    'experiment': 'run a table of learner x suite x seed',
    'report': 'make tables and figures from run folders',
    'reproduce': 'repeat a figure or table of the paper',
    'verify-results': 'repeat the first iterations of a committed run and compare',
    'security': 'write SROS2 permissions for the nodes of a graph',
    'chaos': 'break runs on purpose and see them end with the same bytes',
    'explain': 'show what a task reuses of the shared basis',
    'export': 'write one policy as a small file and as ONNX',
    'bench': 'measure speed as ratios within one run',
    'demo': 'close five drawers, one learned after another, and show the gain',
    'tasks': 'list suites and their tasks',
    'doctor': 'check this machine and say what to do',
}


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line and exit code 2."""

    def error(self, message: str) -> None:  # type: ignore[override]
        print(f'{self.prog}: {message} (see {self.prog} --help)', file=sys.stderr)
        raise SystemExit(2)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one sub-command; user mistakes end as one line and exit code 2."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not os.environ.get('DISPLAY'):  # read when MuJoCo is imported, by the sub-commands
        os.environ.setdefault('MUJOCO_GL', 'egl')
    command = next((word for word in words if not word.startswith('-')), '')
    try:
        args = _parser(command).parse_args(words)
        return int(args.run(args))
    except LpgftwError as error:
        return _say(command, error)
    except ImportError as error:
        if (extra := missing_extra(error)) is None:
            raise
        return _say(command, extra)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 0


def _parser(chosen: str) -> _Parser:
    """Return the parser with the options of the chosen command; the others stay unloaded."""
    parser = _Parser(prog='lpgftw', description='Lifelong policy learning with LPG-FTW.')
    parser.add_argument('--version', action='version', version=f'lpgftw {__version__}')
    commands = parser.add_subparsers(
        dest='command', required=True, metavar='COMMAND', parser_class=_Parser
    )
    for name, text in COMMANDS.items():
        sub = commands.add_parser(name, help=text, description=text)
        if name == chosen:
            module = importlib.import_module(f'lpgftw_ros.commands.{name.replace("-", "_")}')
            module.add_arguments(sub)
            sub.set_defaults(run=module.run)
    return parser


def _say(command: str, error: LpgftwError) -> int:
    print(f'lpgftw {command}: {error}', file=sys.stderr)
    return 2


if __name__ == '__main__':
    sys.exit(main())
