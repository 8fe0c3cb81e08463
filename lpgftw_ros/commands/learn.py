"""`lpgftw learn`: continue a run with more tasks, or revisit old ones."""

import argparse
import logging
import sys

from lpgftw_ros import arguments
from lpgftw_ros.commands.train import print_summary
from lpgftw_ros.domains.suites import load_suite, TaskSpec
from lpgftw_ros.errors import InvalidConfig, LpgftwError
from lpgftw_ros.learning.arrays import Batch
from lpgftw_ros.runs.config import RunConfig
from lpgftw_ros.runs.folder import read_config, RunFolder, task_digest
from lpgftw_ros.runs.options import add_options, add_sampling_arguments, sampling_options
from lpgftw_ros.runs.settings import ClusterOption


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument('run_folder', metavar='RUN', type=arguments.folder, help='run folder')
    parser.add_argument(
        'tasks',
        nargs='+',
        type=arguments.text,
        metavar='TASK',
        help='tasks, in order',
    )
    parser.add_argument(
        '--suite', type=arguments.text, help="suite the tasks are from (default: the run's own)"
    )
    parser.add_argument(
        '--unknown',
        action='store_true',
        help='do not use the names: find out which tasks are known, and learn the others',
    )
    parser.add_argument(
        '--source', type=arguments.folder, help='finished STL run that pg-ella starts from'
    )
    add_sampling_arguments(parser)
    add_options(parser, ClusterOption)


def run(args: argparse.Namespace) -> int:
    """Finish what is left of the run, then learn the tasks."""
    logging.basicConfig(format='%(levelname)s: %(message)s', stream=sys.stderr)
    config = read_config(args.run_folder)
    specs = new_tasks(config, args.tasks, args.suite)
    with RunFolder(args.run_folder, config, resume=True) as folder:
        folder.add_tasks(specs)
    tasks = unrecognised(args) if args.unknown else args.tasks
    if not tasks:
        return 0
    from lpgftw_ros.api import load, run_session
    from lpgftw_ros.runs.driver import display, take_up
    from lpgftw_ros.runs.session import Session

    def add(session: Session) -> None:
        take_up(session.lifelong)
        session.lifelong.extend(tasks)
        session.save()

    run_session(
        read_config(args.run_folder),
        args.run_folder,
        before=add,
        show=display,
        **sampling_options(args),
        ray=args.ray or '',
        resume=True,
        source=args.source,
    )
    print_summary(load(args.run_folder).summary)
    print(f'run folder: {args.run_folder}')
    return 0


def unrecognised(args: argparse.Namespace) -> list[str]:
    """Say what each environment is; return those that are to be learned."""
    from lpgftw_ros.runs.driver import open_session
    from lpgftw_ros.runs.visits import Collect

    config, new = read_config(args.run_folder), []
    with open_session(
        config,
        args.run_folder,
        **sampling_options(args),
        ray=args.ray or '',
        resume=True,
        source=args.source,
    ) as (session, sampler):

        def collect(request: Collect) -> Batch:
            policy = session.policy(request)
            return sampler.collect(
                request.task, policy, request.n_trajectories, request.seed, False
            )

        known = session.learner.knowledge().tasks
        for task in args.tasks:
            found = session.lifelong.recognise(task, collect)
            print(f'{task} is {found}')
            if found.kind == 'known':
                print(f'  act with the policy of {found.task}')
            elif task in known:
                session.save()
                raise LpgftwError(f"this run has a task '{task}' that was not recognised")
            else:
                new.append(task)
        session.save()
    return new


def new_tasks(config: RunConfig, names: list[str], suite: str | None) -> list[TaskSpec]:
    """Return the tasks a run does not have yet; raise for one it cannot learn."""
    own = load_suite(config.suite_source)
    given = own if suite is None else load_suite(suite)
    shape = own.task(config.tasks[0]).dimensions
    fresh = []
    for name in dict.fromkeys(names):
        task = given.task(name)
        if task.dimensions != shape:
            raise InvalidConfig(
                f"task '{name}' has {task.dimensions[0]} observations and {task.dimensions[1]} "
                f'actions, the policies of this run have {shape[0]} and {shape[1]}'
            )
        if name not in own.task_names:
            fresh.append(task)
        elif task_digest(task) != task_digest(own.task(name)):
            raise InvalidConfig(
                f"this run has another task '{name}'; give the new one another name in its suite"
            )
    return fresh
