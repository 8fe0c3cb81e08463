"""A report on any set of runs: Markdown, CSV tables, figures as PNG and PDF."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lpgftw_ros.experiments import style
from lpgftw_ros.experiments.bar_plot import plot_bars
from lpgftw_ros.experiments.checks import OURS
from lpgftw_ros.experiments.coefficients import read_coefficients
from lpgftw_ros.experiments.curves import plot_curves
from lpgftw_ros.experiments.diversity import read_cross_returns
from lpgftw_ros.experiments.groups import ALONE, display_name, group_runs, SuiteRuns
from lpgftw_ros.experiments.maps import plot_coefficients, plot_diversity
from lpgftw_ros.experiments.run_data import RunData
from lpgftw_ros.experiments.tables import (
    check_table,
    cost_table,
    measure_table,
    stage_table,
    Table,
)
from lpgftw_ros.experiments.task_tables import matrix_table, task_table

REPORT = 'report.md'


@dataclass(frozen=True, slots=True)
class SuiteReport:
    """Tables and figures of one suite."""

    group: SuiteRuns
    tables: tuple[Table, ...]
    figures: tuple[Path, ...]

    def table(self, kind: str) -> Table | None:
        """Return the table of a kind: claims, stages, measures, cost."""
        name = f'{self.group.suite}-{kind}'
        return next((table for table in self.tables if table.name == name), None)


def write_report(runs: Sequence[RunData], folder: Path) -> tuple[SuiteReport, ...]:
    """Write the report of all runs; return what it holds, suite by suite."""
    reports = tuple(_suite_report(group, folder) for group in group_runs(runs))
    lines = ['# Report', '', 'Measures are defined in docs/metrics.md.', '']
    for report in reports:
        lines += _section(report, folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / REPORT).write_text('\n'.join(lines), encoding='utf-8')
    return reports


def _suite_report(group: SuiteRuns, folder: Path) -> SuiteReport:
    tables = _tables(group)
    (folder / 'tables').mkdir(parents=True, exist_ok=True)
    for table in tables:
        (folder / 'tables' / f'{table.name}.csv').write_text(table.csv(), encoding='utf-8')
    with style.look():
        return SuiteReport(group, tables, _figures(group, folder / 'figures'))


def _tables(group: SuiteRuns) -> tuple[Table, ...]:
    found = [check_table(group), stage_table(group), measure_table(group)]
    found += [task_table(group, label) for label in group.methods]
    found += [table for run in group.all_runs if (table := matrix_table(run)) is not None]
    found.append(cost_table(group))
    return tuple(table for table in found if table.rows)


def _figures(group: SuiteRuns, folder: Path) -> tuple[Path, ...]:
    """Draw curves and bars over all runs, maps of the first seed."""
    found = [plot_curves(group, folder), plot_bars(group, folder)]
    for run in group.methods.get(OURS, ())[:1]:
        coefficients = read_coefficients(run.path)
        if coefficients is not None:
            name = f'{group.suite}-coefficients-seed-{run.seed}'
            title = f'What tasks take of L\n{group.suite}, seed {run.seed}'
            found.append(plot_coefficients(coefficients, folder, name, title))
    for run in group.methods.get(ALONE, ())[:1]:
        cross = read_cross_returns(run.path)
        if cross is not None:
            name = f'{group.suite}-diversity-seed-{run.seed}'
            title = f'Task diversity\n{group.suite}, seed {run.seed}'
            found.append(plot_diversity(cross, folder, name, title))
    return tuple(path for path in found if path is not None)


def _section(report: SuiteReport, folder: Path) -> list[str]:
    group = report.group
    lines = [f'## {group.suite}', '', _what(group), '']
    for figure in report.figures:
        lines += [f'![{figure.stem}]({figure.relative_to(folder).as_posix()})', '']
    for table in report.tables:
        lines += [f'### {table.title}', '', table.markdown(), '']
    return lines


def _what(group: SuiteRuns) -> str:
    parts = []
    for label, runs in group.methods.items():
        seeds = ', '.join(str(run.seed) for run in runs)
        running = sum(not run.finished for run in runs)
        note = f', {running} of {len(runs)} still running' if running else ''
        tasks = max(len(run.tasks) for run in runs)
        parts.append(f'{display_name(label)}: {tasks} tasks, seeds {seeds}{note}')
    return '; '.join(parts) + '.'
