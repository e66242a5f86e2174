"""A piece of a history as bytes, which can be read alone: it begins with how things stood. Pure.

A segment is: the mark, the length of its head and the head; the length of its body and the body; a checksum of both. The body is deflated; in it
stand frames, each a length and a list: tenths of a second since the frame before, then entries of that moment. The first frame is the opening.
"""

import contextlib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from provisioner.history.entries import VERSION, AnyHistoryEntry, Count, HistoryEntry

MARK: Final = b"DOVEHIS1"
LENGTH_BYTES: Final = 4
TICKS: Final = 10
"""A second."""
_SURE_BYTES: Final = 32 * 1024
"""So much may be in the compressor before its size is asked for."""
_MOST_FRAME: Final = 32 << 20
_MOST_INFLATED: Final = 1 << 30
_MOST_TIME: Final = 253402300800.0  # the year 10000
_CHUNK: Final = 1 << 16
_LEVEL: Final = 6


class SegmentError(Exception):
    """Bytes that are no segment, or not all of one."""


class SegmentHead(msgspec.Struct, frozen=True):
    """What is told of a segment without unpacking it.

    Attributes:
        id: of this segment.
        source: "leader", or "record" for one of `dovetail record`.
        began, ended: seconds since 1970.
        entries: how many.
        follows: ID of the segment that ended where this one begins; "" for the first after a start or a gap.
        anonymous: its names are replaced.
        software: the version that wrote it.
        v: of the entries.
    """

    id: str
    source: str
    began: float
    ended: float
    entries: Count
    follows: str = ""
    anonymous: bool = False
    software: str = ""
    v: int = VERSION


_encode_head, _decode_head = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(SegmentHead).decode
_encode_frame = msgspec.msgpack.Encoder().encode
_decode_frame = msgspec.msgpack.Decoder(tuple[int, tuple[AnyHistoryEntry, ...]]).decode


class SegmentWriter:
    """A segment that is being written. One thread.

    Args:
        head: of what is known when it begins; its end and its entries are counted here.
        opening: how things stand.
    """

    def __init__(self, head: SegmentHead, opening: Sequence[HistoryEntry]) -> None:
        self._head = head
        self.id, self.began, self.last = head.id, head.began, head.began
        self._deflate = zlib.compressobj(_LEVEL)
        self._done, self._size, self._unsure, self._ticks = list[bytes](), 0, 0, 0
        self.entries = 0
        self.add(self.began, opening)

    @property
    def size(self) -> int:
        """Bytes that it takes at the most, as it is."""
        return self._size + self._unsure + 512

    def add(self, at: float, entries: Sequence[HistoryEntry]) -> None:
        """Entries of one moment, not before the last."""
        ticks = max(self._ticks, round((at - self.began) * TICKS))
        frame = _encode_frame((ticks - self._ticks, entries))
        self._ticks, self.last = ticks, max(self.last, at)
        self.entries += len(entries)
        self._keep(self._deflate.compress(len(frame).to_bytes(LENGTH_BYTES, "little") + frame))
        self._unsure += len(frame) + LENGTH_BYTES + 16
        if self._unsure >= _SURE_BYTES:
            self._keep(self._deflate.flush(zlib.Z_SYNC_FLUSH))
            self._unsure = 0

    def to_bytes(self) -> bytes:
        """The segment as it is now; more can be added."""
        body = b"".join((*self._done, self._deflate.copy().flush()))
        head = _encode_head(msgspec.structs.replace(self._head, ended=self.last, entries=self.entries))
        parts = (len(head).to_bytes(LENGTH_BYTES, "little"), head, len(body).to_bytes(LENGTH_BYTES, "little"), body)
        whole = MARK + b"".join(parts)
        return whole + zlib.crc32(whole).to_bytes(LENGTH_BYTES, "little")

    def _keep(self, data: bytes) -> None:
        if data:
            self._done.append(data)
            self._size += len(data)


class Segment:
    """A segment that was read.

    Attributes:
        head: what is told of it.
    """

    def __init__(self, head: SegmentHead, body: bytes) -> None:
        self.head, self._body = head, body

    @property
    def opening(self) -> tuple[AnyHistoryEntry, ...]:
        """How things stood when it began; where it follows another that was read, nothing new.

        Raises:
            SegmentError: it cannot be read.
        """
        return next(iter(self._frames()), (0, ()))[1]

    def __iter__(self) -> Iterator[tuple[float, AnyHistoryEntry]]:
        """What happened, in order, less the opening: each with its time in seconds since 1970.

        Raises:
            SegmentError: the rest cannot be read.
        """
        ticks = 0
        for number, (more, entries) in enumerate(self._frames()):
            ticks += more
            if number:
                at = self.head.began + ticks / TICKS
                for one in entries:
                    yield at, one

    def unpacked_bytes(self, most: int) -> int:
        """Bytes of the body, unpacked, as far as that is possible; more than `most` where they are more. Cost: unpacks so much, in small pieces."""
        size = 0
        with contextlib.suppress(zlib.error, SegmentError):  # whoever reads the entries is told
            for chunk in _inflated(self._body):
                size += len(chunk)
                if size > most:
                    break
        return size

    def _frames(self) -> Iterator[tuple[int, tuple[AnyHistoryEntry, ...]]]:
        entries, last = 0, round((self.head.ended - self.head.began) * TICKS) + 1
        ticks = 0
        try:
            for number, data in enumerate(_split(_inflated(self._body))):
                frame = _decode_frame(data)
                entries, ticks = entries + len(frame[1]), ticks + frame[0]
                if max(entries, number - 1) > self.head.entries:
                    raise SegmentError(f"segment {self.head.id} has more entries than its head tells")
                if frame[0] < 0 or ticks > last:
                    raise SegmentError(f"segment {self.head.id} has entries of a time that it does not cover")
                yield frame
        except (zlib.error, msgspec.MsgspecError, RecursionError) as error:
            raise SegmentError(f"segment {self.head.id} cannot be decoded: {error}") from None


def read_segment(data: bytes) -> Segment:
    """The segment in these bytes. Cost: its checksum; entries are decoded as they are asked for.

    Raises:
        SegmentError: there is none, it is not complete, it was changed, or a newer version wrote it.
    """
    if data[: len(MARK)] != MARK:
        raise SegmentError("this is not a segment of a history")
    head, rest = _part(data, len(MARK), "head")
    body, rest = _part(data, rest, "body")
    if len(data) != rest + LENGTH_BYTES:
        raise SegmentError("the segment is truncated, or has bytes after its end")
    if zlib.crc32(data[:rest]) != int.from_bytes(data[rest:], "little"):
        raise SegmentError("the segment is corrupted: its checksum differs")
    try:
        found = _decode_head(head)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise SegmentError(f"the head of the segment cannot be decoded: {error}") from None
    if not 0 <= found.began <= found.ended < _MOST_TIME:
        raise SegmentError(f"the head of the segment has impossible times: {found.began} to {found.ended}")
    if found.v != VERSION:
        raise SegmentError(f"the segment has version {found.v} of the format; this program reads version {VERSION}")
    return Segment(found, body)


def _part(data: bytes, start: int, what: str) -> tuple[bytes, int]:
    begin = start + LENGTH_BYTES
    end = begin + int.from_bytes(data[start:begin], "little")
    if len(data) < max(begin, end):
        raise SegmentError(f"the segment is truncated in its {what}")
    return data[begin:end], end


def _inflated(body: bytes) -> Iterator[bytes]:
    inflate, size = zlib.decompressobj(), 0
    for start in range(0, len(body), _CHUNK):  # what is not consumed is copied each time, and must be little
        rest = body[start : start + _CHUNK]
        while rest and not inflate.eof:
            chunk = inflate.decompress(rest, _CHUNK)
            size += len(chunk)
            if size > _MOST_INFLATED:
                raise SegmentError(f"the segment cannot be decoded: it has more than {_MOST_INFLATED >> 20} MiB")
            yield chunk
            rest = inflate.unconsumed_tail
    yield inflate.flush(_CHUNK)


def _split(chunks: Iterable[bytes]) -> Iterator[bytes]:
    held = bytearray()
    for chunk in chunks:
        held += chunk
        start = 0
        while len(held) >= start + LENGTH_BYTES:
            size = int.from_bytes(held[start : start + LENGTH_BYTES], "little")
            if size > _MOST_FRAME:
                raise SegmentError("the segment cannot be decoded: a frame is too large")
            end = start + LENGTH_BYTES + size
            if len(held) < end:
                break
            yield bytes(held[start + LENGTH_BYTES : end])
            start = end
        del held[:start]
    if held:
        raise SegmentError("the segment cannot be decoded: its last frame is not complete")
