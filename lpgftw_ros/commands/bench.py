"""`lpgftw bench`: measure speed as ratios within one run, so that machines can be compared."""

import argparse
import importlib

BENCHES = {
    'sampling': 'trajectories against the speed of the bare physics',
    'ray': 'sampling on the workers of a Ray cluster against local workers',
    'update': 'knowledge update and value fit against their bare linear algebra and torch',
    'growth': 'the update of task 50 against that of task 5',
    'ros': 'sampling through the ROS graph against sampling in process',
    'dashboard': 'sampling with a browser on the page against sampling without',
    'arithmetic': 'the same bytes on every processor: what is pinned, and what it costs',
    'guard': 'the safety guard against an arm that fails or lies',
    'soak': 'memory, descriptors and threads of a graph that runs for hours',
    'deploy': 'time from an observation to the command, against a bare round trip',
}
SHARED = {'growth': 'update', 'ray': 'sampling'}
"""Benches that share another one's module and options."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the benches; the options of one are read by its own module."""
    what = '; '.join(f'{name}: {text}' for name, text in BENCHES.items())
    parser.add_argument('bench', choices=BENCHES, metavar='BENCH', help=what)
    hint = 'see lpgftw bench BENCH --help'
    parser.add_argument('options', nargs=argparse.REMAINDER, help=hint).required = False
    parser.set_defaults(parser_class=type(parser))


def run(args: argparse.Namespace) -> int:
    """Run one bench; only its module is loaded."""
    name = SHARED.get(args.bench, args.bench)
    module = importlib.import_module(f'lpgftw_ros.bench.{name}')
    text = BENCHES[args.bench]
    parser = args.parser_class(prog=f'lpgftw bench {args.bench}', description=text)
    module.add_arguments(parser)
    parser.set_defaults(bench=args.bench)
    return int(module.run(parser.parse_args(args.options)))
