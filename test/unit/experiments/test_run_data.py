import gzip
import json

import numpy as np
import pytest

from lpgftw_ros.experiments.run_data import read_run, read_runs
from lpgftw_ros.runs.folder import BadRunFolder, find_runs, MissingRun


def test_stages_that_do_not_apply_are_absent(make_run, entry):
    run = make_run(tasks=[entry('a', 0, start=1.0, tune=(5.0, 0.5))])
    assert set(run.tasks[0].scores) == {'start', 'tune'}


def test_curves_leave_out_update_rows(make_run, entry):
    run = make_run(tasks=[entry('a', 0)], curves=[[1.0, 2.0, 3.0]])
    np.testing.assert_array_equal(run.curve(0), [1.0, 2.0, 3.0])


def test_a_half_written_last_line_is_ignored(make_folder, entry):
    folder = make_folder('live', tasks=[entry('a', 0)], curves=[[1.0]], state='running')
    with (folder / 'metrics.jsonl').open('a') as file:
        file.write('{"kind": "iterat')
    run = read_run(folder)
    assert len(run.iterations) == 1
    assert not run.finished


def test_a_damaged_line_in_the_middle_is_an_error(make_folder, entry):
    folder = make_folder('bad', tasks=[entry('a', 0)], curves=[[1.0]])
    text = (folder / 'metrics.jsonl').read_text()
    (folder / 'metrics.jsonl').write_text('{"kind": \n' + text)
    with pytest.raises(BadRunFolder, match='line 1'):
        read_run(folder)


def test_compressed_metrics_read_the_same(make_folder, entry):
    folder = make_folder('packed', tasks=[entry('a', 0)], curves=[[1.0, 2.0]])
    plain = read_run(folder).iterations
    (folder / 'metrics.jsonl.gz').write_bytes(
        gzip.compress((folder / 'metrics.jsonl').read_bytes())
    )
    (folder / 'metrics.jsonl').unlink()
    assert read_run(folder).iterations == plain


def test_a_run_without_metrics_yet_has_no_iterations(make_folder, entry):
    folder = make_folder('new', tasks=[entry('a', 0)], state='running')
    (folder / 'metrics.jsonl').unlink()
    assert read_run(folder).iterations == ()


def test_a_ragged_matrix_is_filled_with_nan(make_run, entry):
    run = make_run(tasks=[entry('a', 0), entry('b', 1)], matrix=[[1.0], [2.0, None]])
    np.testing.assert_array_equal(run.matrix, [[1.0, np.nan], [2.0, np.nan]])


def test_the_variant_is_the_folder_above_the_seed(make_folder):
    folder = make_folder('x/ewc-1-3/seed-50', learner='ewc')
    assert read_run(folder).label == 'ewc-1-3'


def test_another_folder_name_is_no_variant(make_folder):
    folder = make_folder('stl-try/one', learner='stl')
    assert read_run(folder).label == 'stl'


def test_a_folder_without_summary_is_named(tmp_path):
    with pytest.raises(MissingRun, match=r'no summary\.json'):
        read_run(tmp_path)


def test_a_path_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(MissingRun, match='nowhere'):
        find_runs([tmp_path / 'nowhere'])


def test_another_format_is_refused(make_folder):
    folder = make_folder('old')
    summary = json.loads((folder / 'summary.json').read_text()) | {'format': 7}
    (folder / 'summary.json').write_text(json.dumps(summary))
    with pytest.raises(BadRunFolder, match='format 7'):
        read_run(folder)


def test_a_summary_without_its_keys_is_refused(make_folder):
    folder = make_folder('poor')
    (folder / 'summary.json').write_text('{"format": 1}')
    with pytest.raises(BadRunFolder, match='suite'):
        read_run(folder)


def test_a_summary_that_is_not_json_is_refused(make_folder):
    folder = make_folder('broken')
    (folder / 'summary.json').write_text('{')
    with pytest.raises(BadRunFolder, match='cannot read'):
        read_run(folder)


def test_runs_are_found_below_a_folder(make_folder, tmp_path):
    folders = [make_folder(f'deep/{name}/seed-50') for name in ('b', 'a')]
    assert find_runs([tmp_path, folders[0]]) == tuple(sorted(folders))


def test_two_runs_of_one_cell_are_refused(make_folder, tmp_path):
    make_folder('one')
    make_folder('two')
    with pytest.raises(BadRunFolder, match='both lpg-ftw'):
        read_runs([tmp_path])
