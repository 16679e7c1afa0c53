"""Flower's strategies without a network: a grid whose nodes run in this process, in order."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from .client import ARRAYS

FAILED = 0  # Flower's code of an error without a code of its own


SERVER = 1  # the number of the server among the nodes


class LocalGrid(Grid):
    """A node for each client; replies come in their order."""

    def __init__(self, app: ClientApp, clients: int) -> None:
        # A message says which process it comes from; Flower sets that where it starts one.
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 0, SERVER
        self.app = app
        self.contexts = {
            (node := SERVER + 1 + k): Context(
                run_id=0,
                node_id=node,
                node_config={"partition-id": k, "num-partitions": clients},
                state=RecordDict(),
                run_config={},
            )
            for k in range(clients)
        }
        self.sent = self.received = 0  # bytes of arrays

    def get_node_ids(self) -> Iterable[int]:
        return list(self.contexts)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        return [self._ask(m) for m in sorted(messages, key=lambda m: m.metadata.dst_node_id)]

    def _ask(self, message: Message) -> Message:
        self.sent += weight(message)
        try:
            reply = self.app(message, self.contexts[message.metadata.dst_node_id])
        except Exception as error:  # as Flower does: the others go on
            traceback.print_exc()
            return Message(Error(FAILED, f"{type(error).__name__}: {error}"), reply_to=message)
        self.received += weight(reply)
        return reply

    # What strategies do not ask for -------------------------------------------------------------

    def set_run(self, run: Any) -> None:
        pass

    @property
    def run(self) -> Any:
        return None

    def create_message(self, *args: Any, **words: Any) -> Message:
        return Message(*args, **words)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise RuntimeError("this grid has send_and_receive alone")

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise RuntimeError("this grid has send_and_receive alone")


def weight(message: Message) -> int:
    """Bytes of its arrays, each as a NPY file."""
    record = message.content.array_records.get(ARRAYS) if message.has_content() else None
    return sum(len(array.data) for array in record.values()) if record is not None else 0
