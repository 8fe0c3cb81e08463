"""The folder of the locks, in a place where everybody can write."""

import os
from pathlib import Path
import tempfile

import pytest

from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.graph.admission import claim, require_no_arm


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))
    return tmp_path / f'lpgftw-nodes-{os.getuid()}'


def test_the_locks_are_in_a_folder_of_our_own(folder: Path) -> None:
    claim('/lifelong/policy', 'one', 0).close()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in folder.iterdir()] == ['0.lifelong.policy']


@pytest.mark.parametrize('how', ['a link', 'a file', 'open to all', 'of another user'])
def test_a_folder_that_another_user_could_have_made_is_refused(
    folder: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, victim = folder.parent / 'theirs', folder.parent / 'victim'
    theirs.mkdir()
    victim.write_text('untouched')
    (theirs / '0.lifelong.policy').symlink_to(victim)
    if how == 'a link':
        folder.symlink_to(theirs)
    elif how == 'a file':
        folder.touch()
    else:
        theirs.rename(folder)
        folder.chmod(0o777 if how == 'open to all' else 0o755)
    if how == 'of another user':
        folder.rename(folder.with_name('lpgftw-nodes-54321'))
        monkeypatch.setattr(os, 'getuid', lambda: 54321)
    with pytest.raises(LpgftwError, match='only you can write to'):
        claim('/lifelong/policy', 'one', 0)
    with pytest.raises(LpgftwError, match='only you can write to'):
        require_no_arm()
    assert victim.read_text() == 'untouched'
