"""`lpgftw bench`: one object on standard output, mistakes in one line."""

import json

import pytest

from lpgftw_ros.cli import main


def test_update_prints_one_object_with_its_ratios(capsys):
    assert main(['bench', 'update', '--json', '--rounds', '1']) == 0
    found = json.loads(capsys.readouterr().out)
    assert {'knowledge_ratio', 'value_fit_ratio', 'value_error_ratio'} <= set(found)
    assert found['value_error_ratio'] == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize('words', [['bench'], ['bench', 'nothing'], ['bench', 'update', '--no']])
def test_a_wrong_call_ends_with_code_two(words, capsys):
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
