"""Arguments no command can use end in one line and code 2, before anything is done."""

import shlex

import pytest

from lpgftw_ros.cli import main

WRONG = {
    'tasks mt10 --seed -5': 'at least 0',
    'tasks mt10 --seed 99999999999': 'at most 2147483647',
    'tasks mt10 --seed x': 'whole number',
    'tasks ""': 'no suite',
    'train': '--suite is needed',
    'train --suite demo --seed -1': 'at least 0',
    'train --suite demo --tasks +-3': 'no task',
    'train --suite demo --tasks ""': 'must not be empty',
    'train --suite demo --learner ""': 'must not be empty',
    'train --suite demo --out ""': 'must not be empty',
    'train --suite demo --out a-file': "'a-file' is a file",
    'train --suite demo --out a-file/run': "'a-file' is a file",
    'train --suite demo --iterations -1': 'at least 0',
    'train --suite demo --trajectories 0': 'at least 1',
    'train --suite demo --workers -1': 'at least 0',
    'train --suite demo --workers 1000000': 'at most 1024',
    'train --suite demo --preset mt10': 'known: published, paper',
    'train --suite demo --set max_kl': 'KEY=VALUE',
    'train --suite demo --learner pg-ella --source nothing': "no folder 'nothing'",
    'train --suite nothing.yaml': 'no suite file',
    'train --resume': '--resume needs --out',
    'train --resume --out nothing': 'not a run folder',
    'demo --seed -1': 'at least 0',
    'demo --iterations 0': 'at least 1',
    'demo --workers -1': 'at least 0',
    'demo --out ""': 'must not be empty',
    'evaluate nothing': "no folder 'nothing'",
    'evaluate .': 'not a run folder',
    'evaluate . --seed -1': 'at least 0',
    'evaluate . --episodes 0': 'at least 1',
    'evaluate . --workers -1': 'at least 0',
    'evaluate . --tasks reach,': 'must not be empty',
    'evaluate . --render x.avi': 'end in .mp4',
    'evaluate . --render a-file/x.mp4': "'a-file' is a file",
    'explain nothing': "no folder 'nothing'",
    'explain .': 'no finished iteration',
    'explain': 'give a run folder, or --settings',
    'explain --settings nothing': "no learner 'nothing'",
    'learn nothing reach': "no folder 'nothing'",
    'learn .': 'TASK',
    'learn . reach': 'not a run folder',
    'knowledge show nothing': "'nothing'",
    'knowledge show a-file': 'a-file is damaged',
    'knowledge save . x': 'no finished iteration',
    'train --suite demo --knowledge nothing': "'nothing'",
    'export nothing --task reach --out p': "no folder 'nothing'",
    'export . --task "" --out p': 'must not be empty',
    'export . --task reach --out ""': 'must not be empty',
    'export . --task reach --out .': 'is a folder',
    'export . --task reach --out p --rate 0': 'above 0',
    'export . --task reach --out p --full-speed nan': 'above 0',
    'up --suite nothing': "no suite 'nothing'",
    'up --seed -1': 'at least 0',
    'up --policy-from nothing': "'nothing'",
    'up --check --check-timeout -1': 'above 0',
    'up --realtime-factor fast': 'must be a number',
    'train --suite demo --step-timeout -1': 'from 0 to 86400',
    'up --namespace ""': 'namespace must be',
    'experiment nothing.yaml': 'cannot read the spec',
    'experiment mt10 --profile nothing': "no profile 'nothing'",
    'experiment mt10 --jobs 0': 'at least 1',
    'experiment mt10 --workers 0': 'at least 1',
    'experiment mt10 --ray ""': 'must not be empty',
    'experiment mt10 --out a-file': "'a-file' is a file",
    'reproduce nothing': "no figure or table 'nothing'",
    'reproduce mt10 --profile nothing': 'invalid choice',
    'report nothing --out r': "no folder 'nothing'",
    'report . --out r': 'no run below',
    'report . --out a-file': "'a-file' is a file",
    'report . --out r --notes nothing.yaml': "no file 'nothing.yaml'",
    'report . --out r --page .': 'is a folder',
    'bench update --rounds 0': 'at least 1',
    'bench update --threads 0': 'at least 1',
    'bench growth --rounds 0': 'at least 1',
    'bench sampling --rounds 0': 'at least 1',
    'bench growth --rounds x': 'whole number',
    'bench sampling --only ""': 'must not be empty',
    'bench sampling --workers -1': 'at least 0',
    'bench ros --rounds 0': 'at least 1',
    'bench deploy --rates x': 'must be a number',
    'bench deploy --rates 20,0': 'above 0',
    'bench deploy --seconds inf': 'above 0',
    'bench deploy --domain 233': 'at most 232',
    'bench deploy --policy nothing': "no file 'nothing'",
    'bench deploy --episodes 0': 'at least 1',
}


@pytest.mark.parametrize('words', WRONG)
def test_one_line_says_what_is_wrong(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'a-file').write_text('')
    try:
        code = main(shlex.split(words))
    except SystemExit as end:
        code = end.code
    said = capsys.readouterr()
    assert (code, said.err.count('\n'), said.out) == (2, 1, '')
    assert WRONG[words] in said.err
    assert [path.name for path in tmp_path.iterdir()] == ['a-file']
