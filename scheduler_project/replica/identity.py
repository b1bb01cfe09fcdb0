"""Who the cluster is, as state.db knows it."""

from __future__ import annotations

import msgspec
from django.db import connections

from engine.errors import Unavailable
from engine.model import Cluster

_DECODER = msgspec.msgpack.Decoder(Cluster)


def cluster_identity() -> Cluster:
    """The founded cluster; Unavailable before the founding."""
    with connections["state"].cursor() as cursor:
        cursor.execute("SELECT body FROM cluster")
        row = cursor.fetchone()
    if row is None:
        raise Unavailable("the cluster is not founded yet", reason="NOT_FOUNDED")
    return _DECODER.decode(row[0])
