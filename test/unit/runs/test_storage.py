import json
import os
from pathlib import Path

from hypothesis import given, HealthCheck, settings
from hypothesis import strategies as st
import numpy as np
import pytest

from lpgftw_ros.errors import StateMismatch
from lpgftw_ros.runs.storage import CannotWrite, read_arrays, read_info, write_arrays

ARRAYS = {
    'base/L': np.arange(6.0).reshape(2, 3),
    'run/flags': np.array([True, False]),
    'run/empty': np.zeros((0, 4)),
    'run/count': np.array(3, dtype=np.int64),
}


def test_round_trip(tmp_path: Path) -> None:
    write_arrays(tmp_path / 'a.safetensors', ARRAYS, {'note': [1, 'two', None]})
    arrays, info = read_arrays(tmp_path / 'a.safetensors')
    assert info == {'note': [1, 'two', None]} == read_info(tmp_path / 'a.safetensors')
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)


@given(data=st.data())
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_flipped_bit_is_seen(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / 'flip.safetensors'
    write_arrays(path, ARRAYS, {'note': 'x'})
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    with pytest.raises(StateMismatch):
        read_arrays(path)


@given(size=st.integers(0, 500))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_truncated_file_is_seen(tmp_path: Path, size: int) -> None:
    path = tmp_path / 'cut.safetensors'
    write_arrays(path, ARRAYS, {'note': 'x'})
    content = path.read_bytes()
    path.write_bytes(content[: min(size, len(content) - 1)])
    with pytest.raises(StateMismatch):
        read_arrays(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StateMismatch, match='gone'):
        read_arrays(tmp_path / 'gone.safetensors')


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / 'a.safetensors'
    write_arrays(path, ARRAYS, {'version': 1})

    def full(_: int) -> None:
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr('os.fsync', full)
    with pytest.raises(CannotWrite, match='No space left on device'):
        write_arrays(path, ARRAYS, {'version': 2})
    monkeypatch.undo()
    assert read_arrays(path)[1] == {'version': 1}
    assert [p.name for p in tmp_path.iterdir()] == ['a.safetensors']


@pytest.mark.parametrize('what', ['/dev/zero', 'pipe', 'folder'])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, what: str) -> None:
    path = tmp_path / 'a.safetensors'
    if what == 'pipe':
        os.mkfifo(path)
    elif what == 'folder':
        path.mkdir()
    else:
        path.symlink_to(what)
    with pytest.raises(StateMismatch, match='not a regular file'):
        read_arrays(path)
    assert read_info(path) == {}


@pytest.mark.parametrize('deep', [False, True])
def test_a_header_that_is_too_large_or_too_deep_is_seen(tmp_path: Path, deep: bool) -> None:
    path = tmp_path / 'a.safetensors'
    header = b'[' * 1_000_000 if deep else json.dumps({}).encode()
    path.write_bytes((len(header) if deep else 2**40).to_bytes(8, 'little') + header)
    with pytest.raises(StateMismatch, match='damaged'):
        read_arrays(path)
    assert read_info(path) == {}


def test_a_link_in_place_of_the_temporary_file_is_not_followed(tmp_path: Path) -> None:
    other = tmp_path / 'other'
    other.write_text('untouched')
    (tmp_path / 'a.safetensors.tmp').symlink_to(other)
    write_arrays(tmp_path / 'a.safetensors', ARRAYS, {'version': 1})
    assert read_arrays(tmp_path / 'a.safetensors')[1] == {'version': 1}
    assert other.read_text() == 'untouched'
