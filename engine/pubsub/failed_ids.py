"""Which ack ids of a request failed, as an exactly-once subscription tells it in the status' details."""

from __future__ import annotations

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status


def failed_ids(error: BaseException) -> dict[str, bool]:
    """Ack id → whether it may be repeated; empty when the error does not name ids.

    The service lists every id that failed in `google.rpc.ErrorInfo.metadata`, with a value that begins with
    PERMANENT_FAILURE or TRANSIENT_FAILURE; ids that are not listed were accepted.
    """
    if not isinstance(error, grpc.Call):
        return {}
    try:
        status = rpc_status.from_call(error)
    except ValueError:  # Details of another call: then they say nothing about ids.
        return {}
    verdicts: dict[str, bool] = {}
    for detail in status.details if status else ():
        if detail.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
            info = error_details_pb2.ErrorInfo()
            detail.Unpack(info)
            for ack_id, verdict in info.metadata.items():
                if verdict.startswith(("PERMANENT_FAILURE", "TRANSIENT_FAILURE")):
                    verdicts[ack_id] = verdict.startswith("TRANSIENT_FAILURE")
    return verdicts
