"""SpanFile: the bytes are those written, in spans that the page cache keeps in one block each."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealift.package.span_file import SPAN_BYTES, SpanFile

SIZES = st.lists(st.sampled_from([0, 1, 64, 4096, SPAN_BYTES - 1, SPAN_BYTES, SPAN_BYTES + 1, 3 * SPAN_BYTES + 64]), max_size=6)


def filled(size: int, value: int) -> bytes:
    return bytes([value % 251]) * size


@settings(max_examples=30, deadline=None)
@given(sizes=SIZES, patched=st.integers(0, 5))
def test_bytes_are_those_written(tmp_path_factory: pytest.TempPathFactory, sizes: list[int], patched: int) -> None:
    path = tmp_path_factory.mktemp("span") / "file"
    expected = bytearray()
    with open(path, "wb", buffering=0) as raw:
        file = SpanFile(raw.fileno())
        for i, size in enumerate(sizes):
            assert file.tell() == len(expected)
            file.write(filled(size, i + 1))
            expected += filled(size, i + 1)
            if i == patched and size:
                file.patch(len(expected) - size, b"\xff")
                expected[len(expected) - size] = 0xFF
        file.flush()
    assert path.read_bytes() == expected


def test_writes_end_at_multiples_of_a_span(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[int] = []
    pwrite = os.pwrite

    def noted(descriptor: int, data: memoryview, offset: int) -> int:
        ends.append(offset + len(data))
        return pwrite(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", noted)
    with open(tmp_path / "file", "wb", buffering=0) as raw:
        file = SpanFile(raw.fileno())
        file.write(b"header")
        for i in range(23):
            file.write(filled(1_000_003, i))
        file.flush()
    assert ends == [*range(SPAN_BYTES, ends[-1], SPAN_BYTES), 6 + 23 * 1_000_003]


def test_a_write_that_takes_a_part_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, offset: pwrite(descriptor, data[:1000], offset))
    with open(tmp_path / "file", "wb", buffering=0) as raw:
        file = SpanFile(raw.fileno())
        file.write(bytes(range(256)) * 40)
        file.flush()
    assert (tmp_path / "file").read_bytes() == bytes(range(256)) * 40
