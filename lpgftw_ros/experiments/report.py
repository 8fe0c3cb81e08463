"""Reports: tables and figures of runs, and the results page made from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
import os
from pathlib import Path
import shlex
from typing import Any

import yaml

from lpgftw_ros.errors import InvalidConfig, LpgftwError
from lpgftw_ros.experiments import ExperimentSpec, plots
from lpgftw_ros.experiments.groups import (
    ALONE,
    DEVELOPED,
    DEVELOPMENT_SEEDS,
    display_name,
    group_runs,
    SuiteRuns,
)
from lpgftw_ros.experiments.metrics import ledger
from lpgftw_ros.experiments.plots import (
    panels,
    plot_bars,
    plot_coefficients,
    plot_curves,
    plot_diversity,
    plot_matrix,
    scored_tasks,
)
from lpgftw_ros.experiments.run_data import (
    is_pinned,
    read_coefficients,
    read_cross_returns,
    RunData,
)
from lpgftw_ros.experiments.tables import (
    check_table,
    continual_world_table,
    cost_table,
    matrix_table,
    measure_table,
    overview_table,
    stage_table,
    step_table,
    Table,
    task_table,
)
from lpgftw_ros.resources import read_yaml


def rerun_command(run: RunData) -> str:
    """Return `lpgftw train ...` with every option that differs from the presets."""
    suite = str(run.config.get('suite', run.suite))
    words = ['lpgftw', 'train', '--suite', suite, '--learner', run.learner]
    words += ['--seed', str(run.seed), *_differences(run)]
    if run.learner == 'pg-ella':
        words += ['--source', 'STL_RUN']
    return shlex.join([*words, '--out', f'runs/{run.suite}/{run.label}/seed-{run.seed}'])


def _differences(run: RunData) -> list[str]:
    from lpgftw_ros.runs.config import resolve, RunConfig

    try:
        config = RunConfig.from_dict(run.config)
        usual = resolve(config.suite, run.learner, overrides={'seed': run.seed})
    except LpgftwError:
        return []  # an older or foreign configuration: only its own file can tell
    words = [] if config.tasks == usual.tasks else ['--tasks', _tasks(config.tasks, usual.tasks)]
    wanted, known = config.to_dict(), usual.to_dict()
    changed = {**_changed(wanted['loop'], known['loop'])}
    changed |= _changed(wanted['method'], known['method'])
    for key in ('iterations', 'trajectories'):
        if key in changed:
            words += [f'--{key}', str(changed.pop(key))]
    if config.hidden != usual.hidden:
        changed['hidden'] = ','.join(str(width) for width in config.hidden)
    for key, value in changed.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        words += ['--set', f'{key}={text}']
    return words


def _tasks(tasks: tuple[str, ...], usual: tuple[str, ...]) -> str:
    return str(len(tasks)) if tasks == usual[: len(tasks)] else ','.join(tasks)


def _changed(wanted: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in wanted.items() if known.get(key) != value}


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
    with plots.look():
        return SuiteReport(group, tables, _figures(group, folder / 'figures'))


def _tables(group: SuiteRuns) -> tuple[Table, ...]:
    found = [check_table(group), stage_table(group), measure_table(group)]
    found += [task_table(group, label) for label in group.methods]
    found += [table for run in group.all_runs if (table := matrix_table(run)) is not None]
    if group.suite.startswith('cw'):
        found.append(continual_world_table(group))
    found += [step_table(group), cost_table(group)]
    return tuple(table for table in found if table.rows)


def _figures(group: SuiteRuns, folder: Path) -> tuple[Path, ...]:
    """Draw curves and bars over all runs, matrices, and maps of the first seed."""
    found: list[Path | None] = [*plot_curves(group, folder), *plot_bars(group, folder)]
    found += [plot_matrix(run, folder) for run in group.all_runs if run.matrix is not None]
    for run in group.methods.get('lpg-ftw', ())[:1]:
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


_INTRO = """# Results

`lpgftw report` writes this page; do not edit it. Explanations of differences are in
`results/notes.yaml`. [metrics.md](metrics.md) defines the measures. Published numbers are mean
returns ± standard errors over five seeds. The engine and Meta-World differ from those of 2020, so
compare ratios and orders. A high v1 return is not success: both are shown.
"""
_OVERVIEW = """## Overview

Each row compares runs with the single-task runs (STL) of the same seeds, tasks after the first k.
Area and tune are those of docs/metrics.md, with 95 % intervals over seeds (Student's t, from
three seeds on); with one seed the interval is over tasks and says nothing about seeds.
*Gained* is the interquartile mean over tasks of the relative gain, large where STL earns almost
nothing; *summed* is the ratio of the sums of the areas, ruled by tasks that pay much. In both a
task pays for its own start and iterations; the area of the lifetime counts every step of a run,
draws and probes of other tasks too. A link leads to the commands behind a row. The claims of a
method, further down, name their seeds; those its settings were chosen on are left out.
"""


def read_notes(path: Path) -> Mapping[str, str]:
    """Return the hand-written explanation of each figure or table."""
    if not path.is_file():
        return {}
    try:
        content = read_yaml(path) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        text = ' '.join(str(error).split())
        raise InvalidConfig(f"cannot read the notes '{path}': {text}") from error
    if not isinstance(content, dict):
        raise InvalidConfig(f"'{path}' must map names of figures to texts")
    return {str(key): str(value).strip() for key, value in content.items()}


def write_page(
    path: Path,
    specs: Sequence[ExperimentSpec],
    runs: Sequence[RunData],
    notes: Mapping[str, str],
    figures: Path | None = None,
) -> None:
    """Write the page of all domains, and beside it one of grids and variants.

    `figures` is the folder of the figures to show. A spec of one suite is a domain.
    """
    domains = [spec for spec in specs if len(spec.suites) == 1]
    variants = [spec for spec in specs if len(spec.suites) > 1]
    aside = path.with_stem(f'{path.stem}-variants')
    lines = [_INTRO, *_overview(domains, runs)]
    if variants:
        lines += [f'Grids, variants and task diversity: [{aside.name}]({aside.name}).', '']
    for place, head, chosen in ((path, lines, domains), (aside, [_INTRO], variants)):
        for spec in chosen:
            head += _spec_section(spec, runs, notes.get(spec.name), figures, place.parent)
        place.parent.mkdir(parents=True, exist_ok=True)
        if chosen or place == path:
            place.write_text('\n'.join(head).rstrip() + '\n', encoding='utf-8')


def _overview(specs: Sequence[ExperimentSpec], runs: Sequence[RunData]) -> list[str]:
    """Return the table of all domains and methods, confirmation and development seeds apart."""
    found = [run for spec in specs for run in _runs_of(spec, runs)]
    links = {Path(spec.suites[0]).stem: f'#{_anchor(spec.title)}' for spec in specs}
    confirming = [run for run in found if run.seed not in DEVELOPMENT_SEEDS]
    developing = [run for run in found if run.seed in DEVELOPMENT_SEEDS]
    lines = [_OVERVIEW]
    for title, chosen in (('Confirmation', confirming), ('Development', developing)):
        table = overview_table(group_runs(chosen), links)
        lines += [f'### {title} seeds', '', table.markdown() if table.rows else 'None yet.', '']
    missing = {spec.title: ', '.join(_missing(spec, found)) for spec in specs}
    rows = [f'- {title}: {names}' for title, names in missing.items() if names]
    return [*lines, 'Not measured:', '', *rows, ''] if rows else lines


def _runs_of(spec: ExperimentSpec, runs: Sequence[RunData]) -> list[RunData]:
    wanted = {(Path(cell.suite).stem, cell.label) for cell in spec.cells}
    return [run for run in runs if (run.suite, run.label) in wanted]


def _missing(spec: ExperimentSpec, runs: Sequence[RunData]) -> list[str]:
    """Return the methods of a spec that have no run at all."""
    have = {(run.suite, run.label) for run in runs}
    labels = dict.fromkeys(cell.label for cell in spec.cells)
    return [display_name(x) for x in labels if (Path(spec.suites[0]).stem, x) not in have]


def _anchor(title: str) -> str:
    kept = ''.join(letter for letter in title.lower() if letter.isalnum() or letter in ' -')
    return kept.replace(' ', '-')


def _spec_section(
    spec: ExperimentSpec,
    runs: Sequence[RunData],
    note: str | None,
    figures: Path | None,
    base: Path,
) -> list[str]:
    found = _runs_of(spec, runs)
    if spec.diversity:
        found = [run for run in found if read_cross_returns(run.path) is not None]
    lines = [f'## {spec.title}', '']
    if spec.paper:
        lines += [f'Paper: {spec.paper}.', '']
    lines += [f'Repeat it: `lpgftw reproduce {spec.name} --profile paper`', '']
    if not found:
        lines += ['Not measured yet.', '']
    for group in group_runs(found):
        lines += (
            _diversity(group, figures, base) if spec.diversity else _suite(group, figures, base)
        )
    lines += ['**Why ours differs.** ' + (note or 'Not known.'), ''] if found or note else []
    return lines


def _diversity(group: SuiteRuns, figures: Path | None, base: Path) -> list[str]:
    names = [f'{group.suite}-diversity-seed-{run.seed}.png' for run in group.all_runs]
    return [f'### {group.suite}', '', *_shown(names, figures, base)]


def _shown(names: Sequence[str], figures: Path | None, base: Path) -> list[str]:
    lines = []
    for name in names:
        if figures is not None and (figures / name).is_file():
            link = Path(os.path.relpath(figures / name, base)).as_posix()
            lines += [f'![{name}]({link})', '']
    return lines


def _suite(group: SuiteRuns, figures: Path | None, base: Path) -> list[str]:
    """Return the section of a suite: its figure, the tables, what repeats it, other figures."""
    names = _figure_names(group)
    lines = [f'### {group.suite}', '', *_shown(names[:1], figures, base)]
    tables = [check_table(group), stage_table(group), measure_table(group)]
    if group.suite.startswith('cw'):
        tables.append(continual_world_table(group))
    for table in tables:
        if table.rows:
            lines += [table.markdown(), '']
    lines += ['Commands and cost:', '', *(_cost(run) for run in group.all_runs), '']
    more = _shown(names[1:], figures, base)
    return [*lines, 'More figures:', '', *more] if more else lines


def _figure_names(group: SuiteRuns) -> list[str]:
    """Return the figures of a section: curves, then bars.

    Curves that show what is new come first, then those of most seeds, then of most methods.
    """
    drawn = sorted(
        panels(group),
        key=lambda p: (
            not set(DEVELOPED) & set(p.methods),
            -len(p.tasks),
            -len(p.methods),
            p.name,
        ),
    )
    curves = [f'{group.suite}-curves{panel.name}.png' for panel in drawn]
    bars = [f'{group.suite}-bars{panel.name}.png' for panel in panels(group, scored_tasks)]
    return [*curves, *bars]


def _cost(run: RunData) -> str:
    cost: Any = ledger(run)
    state = '' if run.finished else ' so far'
    native = '' if is_pinned(run.path) else '; not with the pinned arithmetic'
    return (
        f'- `{rerun_command(run)}`: {cost.steps:,} steps, {cost.minutes:.1f} minutes{state}, '
        f'{cost.steps_per_second:,.0f} steps/s end to end '
        f'({cost.end_to_end_share:.2f} of sampling){native}'
    )
