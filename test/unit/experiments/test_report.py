import csv
import io
from pathlib import Path

import pytest

from lpgftw_ros.cli import main
from lpgftw_ros.experiments.curves import band, common_tasks
from lpgftw_ros.experiments.groups import group_runs
from lpgftw_ros.experiments.results_page import read_notes, write_page
from lpgftw_ros.experiments.run_data import read_runs
from lpgftw_ros.experiments.spec import load_spec
from lpgftw_ros.experiments.tables import measure_table, stage_table, Table
from lpgftw_ros.experiments.task_tables import matrix_table, task_table


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
    assert row[2:4] == ('160,553 ± 2,847', '120,000')
    assert row[4] == pytest.approx(120000 / 160553)
    assert row[6] == pytest.approx(1.2)


def test_published_start_is_compared_with_ours_after_one_update(two_methods):
    (group,) = group_runs(read_runs([two_methods]))
    assert stage_table(group).rows[0][1:4:2] == ('start, as published', '2')


def test_measures_have_one_row_per_method(two_methods):
    (group,) = group_runs(read_runs([two_methods]))
    assert [row[0] for row in measure_table(group).rows] == ['LPG-FTW', 'STL']


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
    tasks = common_tasks(group)
    assert tasks == {50: ('a',)}
    assert list(band(group.methods['lpg-ftw'], tasks, 'return_mean').mean) == [2.0, 4.0]


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
    assert '| LPG-FTW | tune | 160,553 ± 2,847 | 120,000 |' in text
    assert '`lpgftw train --suite mt10 --learner stl --seed 50 --out' in text
    assert '1,000 steps, 0.3 minutes' in text
    assert '**Why ours differs.** The engine.' in text


def test_the_page_says_what_is_not_measured(two_methods, tmp_path):
    page = tmp_path / 'results.md'
    write_page(page, [spec(tmp_path, 'mt50')], read_runs([two_methods]), {})
    assert 'Not measured yet.' in page.read_text()


def test_without_a_note_the_cause_is_not_known(two_methods, tmp_path):
    page = tmp_path / 'results.md'
    write_page(page, [spec(tmp_path, 'mt10')], read_runs([two_methods]), {})
    assert '**Why ours differs.** Not known.' in page.read_text()


def test_missing_notes_are_no_error(tmp_path):
    assert read_notes(tmp_path / 'none.yaml') == {}
