"""A slow, plain reading of the wire format, written from its specification, and strategies that make such bytes."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

CUT = {
    "available_at",
    "scheduler-delay",
    "scheduler-op",
    "scheduler-message-id",
    "scheduler-due",
    "scheduler-released",
    "scheduler-source-message-id",
    "scheduler-channel",
}


def varint(number: int, extra: int = 0) -> bytes:
    """A number, with `extra` bytes more than needed."""
    out = []
    while True:
        byte = number & 127
        number >>= 7
        if number or extra:
            out.append(byte | 128)
        else:
            out.append(byte)
            return bytes(out)
        if not number and extra:
            while extra > 1:
                out.append(128)
                extra -= 1
            out.append(0)
            return bytes(out)


@dataclass
class Piece:
    """One field: what it is and how it stands on the wire."""

    number: int
    kind: int
    content: bytes
    raw: bytes


def read(data: bytes) -> list[Piece]:
    """Every field of a well-formed message without groups."""
    pieces = []
    offset = 0

    def number() -> int:
        nonlocal offset
        result = shift = 0
        while True:
            byte = data[offset]
            offset += 1
            result |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return result

    while offset < len(data):
        start = offset
        tag = number()
        kind = tag & 7
        if kind == 0:
            content_start = offset
            number()
        elif kind == 1:
            content_start = offset
            offset += 8
        elif kind == 5:
            content_start = offset
            offset += 4
        else:
            assert kind == 2
            size = number()
            content_start = offset
            offset += size
        assert offset <= len(data)
        pieces.append(Piece(tag >> 3, kind, data[content_start:offset], data[start:offset]))
    return pieces


def entry(content: bytes) -> tuple[str, str]:
    """Key and value of a map entry: the last of each counts."""
    key = value = b""
    for piece in read(content):
        if piece.kind == 2 and piece.number == 1:
            key = piece.content
        elif piece.kind == 2 and piece.number == 2:
            value = piece.content
    return key.decode(), value.decode()


@dataclass
class Expected:
    """What one received message must give."""

    message_id: str = ""
    publish_us: int = 0
    ordering_key: str = ""
    attributes: dict[str, str] = field(default_factory=dict)
    payload: bytes = b""


def expect(message: bytes) -> Expected:
    """Read one PubsubMessage."""
    expected = Expected()
    kept = []
    seconds = nanos = 0
    for piece in read(message):
        if piece.kind == 2 and piece.number == 3:
            expected.message_id = piece.content.decode()
            continue
        if piece.kind == 2 and piece.number == 4:
            for part in read(piece.content):
                if part.kind == 0:
                    number = sum((byte & 127) << 7 * i for i, byte in enumerate(part.content))
                    if part.number == 1:
                        seconds = number
                    elif part.number == 2:
                        nanos = number
            continue
        kept.append(piece.raw)
        if piece.kind == 2 and piece.number == 2:
            key, value = entry(piece.content)
            expected.attributes[key] = value
        elif piece.kind == 2 and piece.number == 5:
            expected.ordering_key = piece.content.decode()
    expected.payload = b"".join(kept)
    expected.publish_us = seconds * 1_000_000 + nanos // 1000
    return expected


def stripped(payload: bytes) -> bytes:
    """A payload without the names that never leave as they came."""
    return b"".join(p.raw for p in read(payload) if not (p.number == 2 and p.kind == 2 and entry(p.content)[0] in CUT))


# -- strategies ---------------------------------------------------------------------------------------------------

extras = st.sampled_from([0, 0, 0, 0, 0, 1, 2])


@st.composite
def fields(draw: st.DrawFn, number: int, content: bytes) -> bytes:
    """A length-delimited field, its tag and length perhaps longer than need be."""
    return varint(number << 3 | 2, draw(extras)) + varint(len(content), draw(extras)) + content


@st.composite
def unknown_fields(draw: st.DrawFn, numbers: st.SearchStrategy[int]) -> bytes:
    """A field that nobody knows, of any kind but groups."""
    number = draw(numbers)
    kind = draw(st.sampled_from([0, 1, 2, 5]))
    if kind == 0:
        return varint(number << 3) + varint(draw(st.integers(0, 2**40)), draw(extras))
    if kind == 2:
        return draw(fields(number, draw(st.binary(max_size=20))))
    size = 8 if kind == 1 else 4
    return varint(number << 3 | kind) + draw(st.binary(min_size=size, max_size=size))


names = st.one_of(
    st.sampled_from([*sorted(CUT), "scheduler-key", "scheduler-expires-at", "scheduler-", "available_a", "k", ""]),
    st.text(max_size=20),
)
# Values that look like the fields the parser searches for.
values = st.one_of(
    st.text(max_size=30),
    st.just("\x0a\x0cavailable_at\x12\x01x"),
    st.just("\x12\x11\x0a\x0cavailable_at\x12\x01x"),
    st.just("available_at scheduler-op"),
    st.text(alphabet="v", min_size=100, max_size=300),
)


@st.composite
def plain_entries(draw: st.DrawFn) -> bytes:
    """An attribute as every library writes it."""
    key, value = draw(names).encode(), draw(values).encode()
    plain = b"\x0a" + varint(len(key)) + key + b"\x12" + varint(len(value)) + value
    return b"\x12" + varint(len(plain)) + plain


@st.composite
def odd_entries(draw: st.DrawFn) -> bytes:
    """An attribute in any other legal form."""
    key, value = draw(names).encode(), draw(values).encode()
    parts = [
        draw(fields(1, key)),
        draw(fields(2, value)),
        *draw(st.lists(unknown_fields(st.integers(3, 9)), max_size=1)),
    ]
    if draw(st.booleans()):
        parts.append(draw(fields(draw(st.sampled_from([1, 2])), draw(names).encode())))
    parts = draw(st.permutations(parts))[: draw(st.integers(0, len(parts)))]
    return draw(fields(2, b"".join(parts)))


times_alone = st.text(alphabet="0123456789.", max_size=14).map(
    lambda value: b"\x12%c\x0a\x0cavailable_at\x12%c%b" % (len(value) + 16, len(value), value.encode())
)
ordinary = st.dictionaries(st.text(alphabet="abk", max_size=9), values, max_size=2).map(
    lambda pairs: [
        b"\x12" + varint(len(e)) + e
        for k, v in pairs.items()
        for e in [b"\x0a%c%b\x12%b%b" % (len(k), k.encode(), varint(len(v.encode())), v.encode())]
    ]
)
entry_lists = st.one_of(
    st.tuples(times_alone.map(lambda e: [e]), ordinary).flatmap(lambda pair: st.permutations(pair[0] + pair[1])),
    st.lists(plain_entries(), max_size=4),
    st.lists(st.one_of(plain_entries(), odd_entries()), max_size=4),
)


@st.composite
def timestamps(draw: st.DrawFn) -> bytes:
    """A google.protobuf.Timestamp."""
    seconds = draw(st.integers(0, 2**34))
    nanos = draw(st.integers(0, 999_999_999))
    return b"\x08" + varint(seconds, draw(extras)) + (b"\x10" + varint(nanos) if draw(st.booleans()) else b"")


@st.composite
def usual_messages(draw: st.DrawFn) -> bytes:
    """A PubsubMessage as the service writes it: fields by number."""
    data = draw(st.binary(max_size=300))
    parts = [b"\x0a" + varint(len(data)) + data] if data else []
    parts += draw(entry_lists)
    message_id = str(draw(st.integers(1, 10**20))).encode()
    time = draw(st.one_of(st.just(b"\x08\x89\x06"), timestamps()))
    parts += [b"\x1a" + varint(len(message_id)) + message_id, b"\x22" + varint(len(time)) + time]
    key = draw(st.one_of(st.just(""), st.text(max_size=12))).encode()
    if key:
        parts.append(b"\x2a" + varint(len(key)) + key)
    if draw(st.integers(0, 7)):
        return b"".join(parts)
    parts += draw(st.lists(unknown_fields(st.integers(6, 300)), max_size=2))
    return b"".join(parts)


@st.composite
def any_messages(draw: st.DrawFn) -> bytes:
    """Any legal PubsubMessage with an id: fields in any order, doubled, unknown, of unexpected kinds."""
    parts = list(draw(entry_lists))
    parts += [draw(fields(1, draw(st.binary(max_size=40)))) for _ in range(draw(st.integers(0, 2)))]
    parts += [draw(fields(3, b"%d" % draw(st.integers(1, 99)))) for _ in range(draw(st.integers(1, 2)))]
    parts += [draw(fields(4, draw(timestamps()))) for _ in range(draw(st.integers(0, 2)))]
    parts += [draw(fields(5, draw(st.text(max_size=8)).encode())) for _ in range(draw(st.integers(0, 2)))]
    parts += draw(st.lists(unknown_fields(st.integers(1, 40)), max_size=2).filter(_not_ours))
    return b"".join(draw(st.permutations(parts)))


def _not_ours(unknown: list[bytes]) -> bool:
    """No length-delimited field with a number that has a meaning, since its content is not of that kind."""
    return not any(piece.kind == 2 and piece.number <= 5 for raw in unknown for piece in read(raw))


messages = st.one_of(usual_messages(), usual_messages(), any_messages())
payloads = messages.map(lambda message: expect(message).payload)
