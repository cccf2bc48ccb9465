"""Generators that yield queries and receive the answers by ``send``."""

from collections.abc import Callable, Generator
from typing import TypeVar

__all__ = ["answer_queries", "translate_queries"]

Question = TypeVar("Question")
Answer = TypeVar("Answer")
OtherQuestion = TypeVar("OtherQuestion")
OtherAnswer = TypeVar("OtherAnswer")
T = TypeVar("T")


def answer_queries(
    steps: Generator[Question, Answer, T], answer: Callable[[Question], Answer]
) -> T:
    """Run a generator, sending it the answer to each query that it yields; return its result.

    Examples
    --------
    >>> def twice():
    ...     return (yield 1), (yield 2)
    >>> answer_queries(twice(), lambda question: 10 * question)
    (10, 20)
    """
    try:
        question = next(steps)
        while True:
            question = steps.send(answer(question))
    except StopIteration as end:
        return end.value


def translate_queries(
    steps: Generator[Question, Answer, T],
    question: Callable[[Question], OtherQuestion],
    answer: Callable[[OtherAnswer], Answer],
) -> Generator[OtherQuestion, OtherAnswer, T]:
    """Run a generator with its queries and their answers translated; return its result."""
    try:
        query = next(steps)
        while True:
            query = steps.send(answer((yield question(query))))
    except StopIteration as end:
        return end.value
