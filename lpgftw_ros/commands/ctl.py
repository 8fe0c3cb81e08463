"""`lpgftw ctl`: look at a running graph and steer it, without the ros2 command."""

import argparse
import json
from typing import Any

from lpgftw_ros import arguments

OF_A_TASK = ('switch', 'learn', 'evaluate')
HELP = {
    'status': 'progress of learning',
    'tasks': 'all tasks and their state',
    'switch': 'act with a task',
    'learn': 'start or continue to learn a task; the running one is parked',
    'pause': 'pause training',
    'resume': 'resume training',
    'stop': 'park the running task and hold',
    'evaluate': "run a task's policy without learning",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    actions = parser.add_subparsers(dest='action', required=True, metavar='ACTION')
    for name, text in HELP.items():
        action = actions.add_parser(name, help=text, description=text)
        if name in OF_A_TASK:
            action.add_argument('task', type=arguments.text, help='name of the task')
        action.add_argument(
            '--namespace',
            type=arguments.text,
            default='/lifelong',
            help='namespace of the graph (default /lifelong)',
        )
        action.add_argument(
            '--timeout',
            type=arguments.positive,
            default=10.0,
            help='seconds to wait for an answer (default 10)',
        )
        action.add_argument('--json', action='store_true', help='print one JSON object')


def run(args: argparse.Namespace) -> int:
    """Ask the graph and print its answer; exit code 0 if it agreed, else 2."""
    from lpgftw_ros.graph.bringup import require_namespace
    from lpgftw_ros.nodes.steering import last_status, onlooker, Steering

    require_namespace(args.namespace)
    with onlooker(args.namespace) as node:
        if args.action == 'status':
            return _say(args, last_status(node, args.timeout))
        steering = Steering(node)
        if args.action == 'tasks':
            return _say(args, steering.tasks(args.timeout))
        task = getattr(args, 'task', '')
        answer = steering.act(args.action, task, args.timeout)
        said = {'success': answer.success, 'message': answer.message}
        print(json.dumps(said) if args.json else answer.message)
        return 0 if answer.success else 2


def _say(args: argparse.Namespace, found: dict[str, Any]) -> int:
    if args.json:
        print(json.dumps(found))
    elif args.action == 'tasks':
        _print_tasks(found)
    else:
        for key, value in found.items():
            print(f'{key}: {value}')
    return 0


def _print_tasks(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=found['message'])
    for column in ('task', 'state', 'iterations', 'return', 'success'):
        table.add_column(column, justify='left' if column in ('task', 'state') else 'right')
    for task in found['tasks']:
        value, success = task['return_mean'], task['success']
        table.add_row(
            ('> ' if task['task'] == found['active'] else '') + task['task'],
            task['state'],
            f'{task["iteration"]}/{task["iterations"]}',
            '-' if value is None else f'{value:,.1f}',
            '-' if success is None else f'{success:.0%}',
        )
    Console().print(table)
