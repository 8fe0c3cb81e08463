import csv
import io
import itertools
import json
from pathlib import Path
import re

import pytest

from lpgftw_ros.cli import main
from lpgftw_ros.experiments import load_spec, plots
from lpgftw_ros.experiments.groups import group_runs
from lpgftw_ros.experiments.plots import (
    band,
    COLUMN,
    MOST_METHODS,
    PAGE,
    panels,
    scored_tasks,
)
from lpgftw_ros.experiments.report import read_notes, write_page
from lpgftw_ros.experiments.run_data import read_runs
from lpgftw_ros.experiments.tables import (
    matrix_table,
    measure_table,
    stage_table,
    step_table,
    Table,
    task_table,
)


@pytest.fixture
def two_methods(make_folder, entry, tmp_path: Path) -> Path:
    for label, tune in (('lpg-ftw', 120000.0), ('stl', 100000.0)):
        tasks = [
            entry(name, i, start=1.0, start_after_update=2.0, tune=(tune, 0.5), final=(tune, 0.5))
            for i, name in enumerate(('reach', 'push'))
        ]
        make_folder(
            f'runs/mt10/{label}/seed-50',
            learner=label,
            suite='mt10',
            tasks=tasks,
            curves=[[1.0, tune], [1.0, tune]],
            successes=[[0.0, 0.5], [0.0, 0.5]],
        )
    return tmp_path / 'runs'


def test_markdown_shows_unknown_values_as_a_dash():
    table = Table('t', 't', ('a', 'b'), (('x', None), ('y', 12345.6)))
    assert table.markdown().splitlines()[2:] == ['| x | - |', '| y | 12,346 |']


def test_csv_keeps_full_precision():
    text = Table('t', 't', ('a',), ((0.123456789,),)).csv()
    assert list(csv.reader(io.StringIO(text)))[1] == ['0.123456789']


def test_stages_stand_beside_the_published_numbers(two_methods):
    (group,) = group_runs(read_runs([two_methods]))
    rows = {(row[0], row[1]): row for row in stage_table(group).rows}
    row = rows['LPG-FTW', 'tune']
    assert row[2:5] == ('50', '160,553 ± 2,847', '120,000')
    assert row[5] == pytest.approx(120000 / 160553)
    assert row[7] == pytest.approx(1.2)


def test_published_start_is_compared_with_ours_after_one_update(two_methods):
    (group,) = group_runs(read_runs([two_methods]))
    assert stage_table(group).rows[0][1:5:3] == ('start, as published', '2')


def test_measures_have_one_row_per_method(two_methods):
    (group,) = group_runs(read_runs([two_methods]))
    assert [row[0] for row in measure_table(group).rows] == ['LPG-FTW', 'STL']


def test_every_measure_of_a_row_has_a_column(two_methods):
    rows = two_methods / 'mt10/stl/seed-50/metrics.jsonl'
    rows.write_text(rows.read_text().replace('"kl": 0.01', '"entropy": 3.5, "kl": 0.01'))
    (group,) = group_runs(read_runs([two_methods]))
    table = step_table(group)
    assert set(table.header[2:]) == {
        'kl',
        'step_length',
        'refused_steps',
        'value_error',
        'entropy',
    }
    entropy, kl = table.header.index('entropy'), table.header.index('kl')
    assert [(row[0], row[entropy]) for row in table.rows] == [('LPG-FTW', None), ('STL', 3.5)]
    assert [row[kl] for row in table.rows] == pytest.approx([0.01, 0.01])


def test_tasks_stand_beside_stl(two_methods):
    (group,) = group_runs(read_runs([two_methods]))
    row = task_table(group, 'lpg-ftw').rows[0]
    assert (row[0], row[6]) == ('reach', pytest.approx(1.2))


def test_the_matrix_is_a_table(make_run, entry):
    run = make_run(tasks=[entry('a', 0), entry('b', 1)], matrix=[[1.0], [2.0, 3.0]])
    table = matrix_table(run)
    assert table.header == ('after', 'a', 'b')
    assert table.rows[1] == ('2: b', 2.0, 3.0)


def test_curves_average_common_tasks_only(make_folder, entry, tmp_path):
    done = [entry('a', 0, tune=1.0), entry('b', 1, tune=1.0)]
    make_folder('x/lpg-ftw', tasks=done, curves=[[2.0, 4.0], [20.0, 40.0]])
    alone = [entry('a', 0, tune=1.0), entry('b', 1)]
    make_folder('x/stl', learner='stl', tasks=alone, curves=[[1.0, 3.0], [9.0]], state='running')
    (group,) = group_runs(read_runs([tmp_path / 'x']))
    (panel,) = panels(group)
    assert panel.tasks == {50: ('a',)}
    found = band(group.methods['lpg-ftw'], panel.tasks, 'return_mean', 2)
    assert list(found.mean) == [2.0, 4.0]
    assert list(found.steps) == [100.0, 200.0]


def test_a_visit_that_ended_early_stays_in_the_curve(make_folder, entry, tmp_path):
    done = [entry('a', 0, tune=9.0, tune_stochastic=5.0), entry('b', 1, tune=1.0)]
    make_folder('x/lpg-ftw', tasks=done, curves=[[2.0], [20.0, 40.0, 60.0]])
    (group,) = group_runs(read_runs([tmp_path / 'x']))
    found = band(group.methods['lpg-ftw'], {50: ('a', 'b')}, 'return_mean', 3)
    assert list(found.mean) == [11.0, 22.5, 32.5]


def seeded(make_folder, entry, label, seed):
    learner = 'ewc' if label.startswith('ewc') else label
    make_folder(
        f'x/halfcheetah-gravity/{label}/seed-{seed}',
        learner=learner,
        seed=seed,
        tasks=[entry('gravity-00', 0, tune=1.0)],
        curves=[[1.0, 2.0]],
    )


def test_methods_share_a_panel_only_with_the_same_seeds(make_folder, entry, tmp_path):
    cells = (('lpg-ftw', 50), ('lpg-ftw', 60), ('stl', 50), ('stl', 60), ('ewc', 50))
    for label, seed in cells:
        seeded(make_folder, entry, label, seed)
    (group,) = group_runs(read_runs([tmp_path / 'x']))
    found = {panel.name: panel for panel in panels(group)}
    assert list(found) == ['', '-seed-50']
    assert list(found[''].methods) == ['lpg-ftw', 'stl']
    assert list(found['-seed-50'].methods) == ['lpg-ftw', 'stl', 'ewc']
    for panel in found.values():
        per_method = {m: [run.seed for run in runs] for m, runs in panel.methods.items()}
        assert len({tuple(seeds) for seeds in per_method.values()}) == 1


def test_variants_have_figures_of_their_own_and_no_panel_more_than_six(
    make_folder, entry, tmp_path
):
    weights = [f'ewc-w1e-{i}' for i in range(8)]
    for label in ('lpg-ftw', 'stl', 'ewc', *weights):
        seeded(make_folder, entry, label, 50)
    (group,) = group_runs(read_runs([tmp_path / 'x']))
    found = {panel.name: list(panel.methods) for panel in panels(group)}
    assert found[''] == ['lpg-ftw', 'stl', 'ewc']
    assert {*found['-ewc-weights'], *found['-ewc-weights-2']} == {'ewc', *weights}
    assert max(map(len, found.values())) <= MOST_METHODS
    for labels in found.values():
        looks = plots.lines(labels).values()
        assert len({colour for colour, _ in looks}) == len(labels)
        assert len({str(dash) for _, dash in looks}) == len(labels)


def test_bodies_have_a_dash_for_success(make_folder, entry, tmp_path):
    seeded(make_folder, entry, 'lpg-ftw', 50)
    (group,) = group_runs(read_runs([tmp_path / 'x']))
    assert all(row[-1] is None for row in stage_table(group).rows if row[4] != '-')


def test_the_matrix_is_a_figure(make_folder, entry, tmp_path):
    make_folder('x/one', tasks=[entry('a', 0), entry('b', 1)], matrix=[[1.0, None], [2.0, 3.0]])
    assert main(['report', str(tmp_path / 'x'), '--out', str(tmp_path / 'out')]) == 0
    names = {path.name for path in (tmp_path / 'out' / 'figures').iterdir()}
    assert 'halfcheetah-gravity-matrix-lpg-ftw-seed-50.pdf' in names


def test_the_command_writes_tables_and_both_kinds_of_figures(two_methods, tmp_path, capsys):
    out = tmp_path / 'report'
    assert main(['report', str(two_methods), '--out', str(out)]) == 0
    names = {path.name for path in out.rglob('*') if path.is_file()}
    assert {'report.md', 'mt10-stages.csv', 'mt10-cost.csv'} <= names
    assert {'mt10-curves.png', 'mt10-curves.pdf', 'mt10-bars.png', 'mt10-bars.pdf'} <= names
    assert 'learns faster than STL' in capsys.readouterr().out


def test_a_run_that_has_only_begun_can_be_reported(make_folder, entry, tmp_path):
    make_folder('runs/one', tasks=[entry('a', 0)], curves=[[1.0]], state='running')
    assert main(['report', str(tmp_path / 'runs'), '--out', str(tmp_path / 'out')]) == 0


def test_a_run_without_any_iteration_can_be_reported(make_folder, tmp_path):
    make_folder('runs/one', state='running')
    assert main(['report', str(tmp_path / 'runs'), '--out', str(tmp_path / 'out')]) == 0


def test_a_folder_without_runs_is_one_line_and_code_two(tmp_path, capsys):
    assert main(['report', str(tmp_path), '--out', str(tmp_path / 'out')]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_report_that_cannot_be_written_is_one_line_and_code_two(two_methods, tmp_path, capsys):
    (tmp_path / 'out').mkdir()
    (tmp_path / 'out' / 'figures').write_text('')
    assert main(['report', str(two_methods), '--out', str(tmp_path / 'out')]) == 2
    assert 'cannot write' in capsys.readouterr().err


def spec(tmp_path: Path, suite: str):
    path = tmp_path / f'{suite}.yaml'
    path.write_text(
        f'title: All of {suite}\nsuites: [{suite}]\nseeds: [50]\nmethods: [lpg-ftw, stl]\n'
    )
    return load_spec(path)


def test_the_page_has_numbers_command_cost_and_note(two_methods, tmp_path):
    page = tmp_path / 'docs' / 'results.md'
    write_page(page, [spec(tmp_path, 'mt10')], read_runs([two_methods]), {'mt10': 'The engine.'})
    text = page.read_text()
    assert '| LPG-FTW | tune | 50 | 160,553 ± 2,847 | 120,000 |' in text
    assert '`lpgftw train --suite mt10 --learner stl --seed 50 --out' in text
    assert '1,000 steps, 0.3 minutes' in text
    assert '**Why ours differs.** The engine.' in text


def test_the_page_says_what_is_not_measured(two_methods, tmp_path):
    page = tmp_path / 'results.md'
    write_page(page, [spec(tmp_path, 'mt50')], read_runs([two_methods]), {})
    assert 'Not measured yet.' in page.read_text()


def test_the_page_opens_with_one_table_that_keeps_the_seeds_apart(make_folder, entry, tmp_path):
    for seed, learner in itertools.product((50, 70), ('lpg-ftw', 'stl')):
        level = (1.0 if learner == 'stl' else 1.5) * seed
        make_folder(
            f'{learner}/seed-{seed}',
            learner=learner,
            seed=seed,
            suite='mt10',
            tasks=[entry(name, i, tune=(level, 1.0), final=level) for i, name in enumerate('ab')],
            curves=[[level], [level]],
        )
    page = tmp_path / 'results.md'
    write_page(page, [spec(tmp_path, 'mt10')], read_runs([tmp_path]), {})
    text = page.read_text()
    confirmation, development = text.index('### Confirmation'), text.index('### Development')
    rows = [line for line in text.splitlines() if line.startswith('| [mt10](#all-of-mt10)')]
    assert ['| 70 |' in rows[0], '| 50 |' in rows[1], len(rows)] == [True, True, 2]
    assert confirmation < text.index(rows[0]) < development < text.index(rows[1])
    assert '+50% (+50% to +50%)' in rows[0]
    assert '1.500 (1.500 to 1.500)' in rows[0]


def reach(make_folder, entry, learner, seed):
    """Write a run of one MT10 task."""
    make_folder(
        f'runs/{learner}/seed-{seed}',
        learner=learner,
        seed=seed,
        suite='mt10',
        tasks=[entry('reach', 0, tune=(70.0, 1.0), final=70.0)],
        curves=[[1.0, 70.0]],
    )


def test_the_page_shows_methods_that_only_the_laptop_profile_has(make_folder, entry, tmp_path):
    for learner in ('lpg-ftw-adaptive', 'stl'):
        reach(make_folder, entry, learner, 70)
    page = tmp_path / 'docs' / 'results.md'
    words = ['report', str(tmp_path / 'runs'), '--out', str(tmp_path / 'out'), '--page', str(page)]
    assert main(words) == 0
    assert '| [mt10](#meta-world-mt10) | LPG-FTW adaptive | 70 |' in page.read_text()


def test_a_section_opens_with_the_figure_of_what_is_new_and_most_seeds(
    make_folder, entry, tmp_path
):
    cells = [('lpg-ftw-adaptive', 70), ('lpg-ftw-adaptive', 80), ('ewc', 70)]
    cells += [(learner, seed) for learner in ('lpg-ftw', 'stl') for seed in (50, 70, 80)]
    for learner, seed in cells:
        reach(make_folder, entry, learner, seed)
    page = tmp_path / 'docs' / 'results.md'
    words = ['report', str(tmp_path / 'runs'), '--out', str(tmp_path / 'out'), '--page', str(page)]
    assert main(words) == 0
    figures = re.findall(r'!\[(mt10-[^]]*)\]', page.read_text())
    assert figures[0] == 'mt10-curves-seed-70-80.png'
    assert len(figures) == len(set(figures)) > 3


def test_grids_have_a_page_of_their_own(two_methods, tmp_path):
    grid = tmp_path / 'grid.yaml'
    grid.write_text('title: A grid\nsuites: [mt10, mt50]\nseeds: [50]\nmethods: [stl]\n')
    page = tmp_path / 'results.md'
    write_page(page, [spec(tmp_path, 'mt10'), load_spec(grid)], read_runs([two_methods]), {})
    aside = tmp_path / 'results-variants.md'
    assert '## A grid' in aside.read_text()
    assert '## A grid' not in page.read_text()
    assert '(results-variants.md)' in page.read_text()


def test_without_a_note_the_cause_is_not_known(two_methods, tmp_path):
    page = tmp_path / 'results.md'
    write_page(page, [spec(tmp_path, 'mt10')], read_runs([two_methods]), {})
    assert '**Why ours differs.** Not known.' in page.read_text()


def test_missing_notes_are_no_error(tmp_path):
    assert read_notes(tmp_path / 'none.yaml') == {}


def test_bars_share_a_figure_only_with_the_same_seeds_and_tasks(make_folder, entry, tmp_path):
    for label, seed, tasks in (('lpg-ftw', 50, 'ab'), ('lpg-ftw', 60, 'a'), ('stl', 50, 'a')):
        make_folder(
            f'x/halfcheetah-gravity/{label}/seed-{seed}',
            learner=label,
            seed=seed,
            tasks=[entry(task, i, tune=10.0**i) for i, task in enumerate(tasks)],
            curves=[[1.0, 2.0] for _ in tasks],
        )
    (group,) = group_runs(read_runs([tmp_path / 'x']))
    (panel,) = panels(group, scored_tasks)
    assert panel.name == '-seed-50'
    assert panel.tasks == {50: ('a',)}
    assert panel.runs_of('x').stage('lpg-ftw', 'tune').value == 1.0


def test_every_figure_is_as_wide_as_one_column_of_a_paper_or_two(two_methods, tmp_path):
    matrix = [[1.0, None], [2.0, 3.0]]
    for path in two_methods.rglob('summary.json'):
        path.write_text(json.dumps(json.loads(path.read_text()) | {'matrix': matrix}))
    out = tmp_path / 'report'
    assert main(['report', str(two_methods), '--out', str(out)]) == 0
    found = {
        path.name: re.search(rb'/MediaBox \[ 0 0 ([0-9.]+) ', path.read_bytes())
        for path in (out / 'figures').glob('*.pdf')
    }
    assert {'mt10-curves.pdf', 'mt10-bars.pdf', 'mt10-matrix-stl-seed-50.pdf'} <= set(found)
    for name, box in found.items():
        assert round(float(box[1]) / 72, 2) in (COLUMN, PAGE), name
