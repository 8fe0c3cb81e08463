"""`lpgftw reproduce`: one command per figure and table of the paper."""

import argparse

from lpgftw_ros.commands.experiment import (
    add_run_arguments,
    cells_root,
    execute,
    spec_names,
    spec_path,
)
from lpgftw_ros.experiments import load_spec, PROFILES
from lpgftw_ros.experiments.report import REPORT, write_report
from lpgftw_ros.experiments.run_data import read_run
from lpgftw_ros.experiments.sweep import BAD, CellState


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        'figure', nargs='?', help='figure or table; without one all are listed', metavar='FIGURE'
    )
    parser.add_argument(
        '--profile', choices=PROFILES, default='laptop', help='budget (default laptop)'
    )
    add_run_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run the spec, write its report, print the comparison."""
    if args.figure is None:
        for name in spec_names():
            print(f'{name:24} {load_spec(spec_path(name), args.profile).title}')
        return 0
    spec = load_spec(spec_path(args.figure), args.profile)
    statuses = execute(spec, args)
    if args.dry_run:
        return 0
    root = cells_root(spec, args.out)
    folders = [status.folder for status in statuses if status.state is not CellState.FOREIGN]
    runs = [read_run(folder) for folder in folders if (folder / 'summary.json').is_file()]
    if spec.diversity:
        from lpgftw_ros.experiments.run_data import measure_cross_returns

        for one in runs:
            measure_cross_returns(one.path, workers=args.workers or 0)
    out = root / 'reports' / spec.name
    for report in write_report(runs, out):
        print(f'\n{report.group.suite}')
        for kind in ('claims', 'stages', 'measures', 'cost'):
            if (table := report.table(kind)) is not None:
                print(f'\n{table.title}\n{table.markdown()}')
    print(f'\nreport: {out / REPORT}')
    return 1 if any(status.state in BAD for status in statuses) else 0
