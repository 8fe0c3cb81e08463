"""`lpgftw report`: tables and figures from run folders."""

import argparse
from pathlib import Path

from lpgftw_ros import arguments
from lpgftw_ros.commands.experiment import spec_names, spec_path
from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.experiments import load_whole_spec
from lpgftw_ros.experiments.groups import ALONE
from lpgftw_ros.experiments.report import read_notes, REPORT, write_page, write_report
from lpgftw_ros.experiments.run_data import archive_run, read_runs

NOTES = Path('results/notes.yaml')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        'runs',
        nargs='+',
        type=arguments.folder,
        metavar='RUN',
        help='run folders, or folders that hold some',
    )
    parser.add_argument(
        '--out', type=arguments.new_folder, required=True, metavar='DIR', help='report folder'
    )
    parser.add_argument(
        '--page', type=arguments.new_file, metavar='FILE', help='also write docs/results.md here'
    )
    parser.add_argument(
        '--notes',
        type=arguments.file,
        metavar='FILE',
        help='hand-written explanations for --page (default results/notes.yaml)',
    )
    parser.add_argument(
        '--archive',
        type=arguments.new_folder,
        metavar='DIR',
        help='also copy the runs, without checkpoints, here',
    )
    parser.add_argument(
        '--diversity',
        action='store_true',
        help="first run each STL policy on every task of its run ('task diversity')",
    )


def run(args: argparse.Namespace) -> int:
    """Write the report."""
    runs = read_runs(args.runs)
    try:
        if args.diversity:
            from lpgftw_ros.experiments.run_data import measure_cross_returns

            for one in runs:
                if one.label == ALONE and (one.path / 'checkpoints').is_dir():
                    measure_cross_returns(one.path)
        if args.archive is not None:
            for one in runs:
                print(f'archived: {archive_run(one, args.archive)}')
        reports = write_report(runs, args.out)
        if args.page is not None:
            specs = [load_whole_spec(spec_path(name)) for name in spec_names()]
            specs.sort(key=lambda spec: not spec.paper)  # what the paper has comes first
            write_page(
                args.page, specs, runs, read_notes(args.notes or NOTES), args.out / 'figures'
            )
    except OSError as error:
        raise LpgftwError(f'cannot write the report: {error}') from error
    for report in reports:
        if (claims := report.table('claims')) is not None:
            print(f'{report.group.suite}\n{claims.markdown()}')
    print(f'report: {args.out / REPORT}')
    return 0
