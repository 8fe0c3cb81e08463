"""`lpgftw watch`: show a run folder, live or finished, in the browser."""

import argparse
import logging
import os
import signal
import sys
import threading
import time

from lpgftw_ros import arguments

_PARENT_PERIOD = 1.0  # s


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument('run_folder', metavar='RUN', type=arguments.path, help='run folder')
    parser.add_argument(
        '--alone',
        type=arguments.folder,
        metavar='RUN',
        help='single-task run to compare with (default: an stl run next to RUN)',
    )
    parser.add_argument(
        '--wait',
        type=arguments.positive,
        default=0.0,
        metavar='SECONDS',
        help='seconds to wait for a run that is about to begin',
    )
    add_page_arguments(parser)


def add_page_arguments(parser: argparse.ArgumentParser, prefix: str = '') -> None:
    """Declare where the page is served."""
    parser.add_argument(
        f'--{prefix}port',
        type=arguments.whole(0, 65535),
        default=8080,
        help='port of the page (default 8080, 0: any)',
    )
    parser.add_argument(
        f'--{prefix}host',
        type=arguments.text,
        default='127.0.0.1',
        help='address of the page (default 127.0.0.1, this machine only); there is no login, so '
        'on any other address everyone who can reach it can watch and steer',
    )


def run(args: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C."""
    logging.basicConfig(format='%(levelname)s: %(message)s', stream=sys.stderr)
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    deadline = time.monotonic() + args.wait
    while not (args.run_folder / 'config.yaml').is_file() and time.monotonic() < deadline:
        if over.wait(0.1):
            return 0
    from lpgftw_ros.dashboard.folder import FolderSource
    from lpgftw_ros.dashboard.page import give_way, Page

    source = FolderSource(args.run_folder, args.alone)
    give_way()
    try:
        page = Page(source, host=args.host, port=args.port)
    except BaseException:
        source.close()
        raise
    print(page.greeting(), flush=True)
    parent = os.getppid()
    while not over.wait(_PARENT_PERIOD):
        if os.getppid() != parent:  # the parent process is gone
            break
    page.close()
    return 0
