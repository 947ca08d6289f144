"""Conversations in tables: lists of {"role": …, "content": …}, or of {"from": …, "value": …}."""

from typing import Any

from ..core.errors import DataError
from .catalogs import Pair
from .tables import Row, Table

CHAT = ("messages", "conversations", "conversation")
"""Columns of JSON Lines that hold conversations: lists of {"role": …, "content": …}."""
ANSWERS = ("assistant", "gpt", "model", "bot")
"""Roles of the messages that a model learns to write."""


def conversations(table: Table) -> list[list[tuple[str, str]]]:
    """Return the messages of each conversation, as role and text; none if the table has no column of conversations."""
    column = next((name for name in CHAT if name in table.columns), None)
    return [] if column is None else [*map(_turns, table.values(column), table.rows)]


def _turns(value: Any, row: Row) -> list[tuple[str, str]]:
    """Return the role and the text of each message of a conversation."""
    names = (("role", "content"), ("from", "value"))
    turns = []
    for message in value if isinstance(value, list) else [value]:
        found = [pair for pair in names if isinstance(message, dict) and all(name in message for name in pair)]
        if not found or not isinstance(message, dict) or not isinstance(message[found[0][1]], str):
            raise DataError(
                f"{row.place}: a conversation holds {message!r:.60}",
                hint='a conversation is a list of messages such as {"role": "user", "content": "Hello"}',
            )
        turns.append((str(message[found[0][0]]), message[found[0][1]].strip()))
    return turns


def message(turn: tuple[str, str]) -> dict[str, str]:
    """Return a message as chat templates know it: the roles are called user and assistant."""
    role = "assistant" if turn[0] in ANSWERS else "user" if turn[0] == "human" else turn[0]
    return {"role": role, "content": turn[1]}


def exchange(turns: list[tuple[str, str]]) -> Pair:
    """Return what comes before the last answer of a conversation, and this answer; empty where there is none."""
    last = max((place for place, (role, _) in enumerate(turns) if role in ANSWERS), default=0)
    before = turns[:last]
    asked = before[0][1] if len(before) == 1 else "\n".join(f"{role}: {said}" for role, said in before)
    return Pair(asked, turns[last][1] if last else "")
