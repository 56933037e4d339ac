"""The operations of expressions, by number."""

from __future__ import annotations

from enum import IntEnum


class Operation(IntEnum):
    """The operations: `t` is the register of the result, `a` and `b` the operands, `to` a position in the code."""

    END = 0
    MOVE = 1  # t a
    JUMP = 2  # - - to
    AND_FIRST = 3  # t a to: t is the truth of a; go on if it is false
    AND = 4  # t a to: t && a, where t is true or an error; go on if a is false
    OR_FIRST = 5
    OR = 6
    NOT = 7  # t a
    BRANCH = 8  # t a to other: to `to` if a is false, to `other` with an error in t if a is neither
    UNLESS_ERROR = 9  # - a to: go on if a is no error
    IF_ERROR = 10  # t a to: go on with an error in t if a is one
    BOUND = 11  # t a
    SAME_TERM = 12  # t a b
    IS_IRI = 13  # t a
    IS_BLANK = 14
    IS_LITERAL = 15
    STAMP = 16  # t n: the time in word n of the row, or the number that is there
    CALL = 17  # t function arguments argument…: each an operand times 2, plus 1 if its word is passed as it is
    PART = 18  # t a b: which of b parts the term a belongs to
    # those that may need Python
    EQ = 20  # t a b
    NE = 21
    LT = 22
    GT = 23
    LE = 24
    GE = 25
    ADD = 26
    SUBTRACT = 27
    MULTIPLY = 28
    DIVIDE = 29
    IS_NUMERIC = 30  # t a
    NEGATE = 31
    PLUS = 32
    ABS = 33
    FLOOR = 34
    CEIL = 35
    ROUND = 36
    YEAR = 37
    MONTH = 38
    DAY = 39
    HOURS = 40
    MINUTES = 41
    SECONDS = 42
    TO_BOOLEAN = 43
    TO_INTEGER = 44
    TO_DECIMAL = 45
    TO_FLOAT = 46
    TO_DOUBLE = 47


(END, MOVE, JUMP, AND_FIRST, AND, OR_FIRST, OR, NOT, BRANCH, UNLESS_ERROR, IF_ERROR, BOUND) = (
    int(each) for each in Operation if each <= Operation.BOUND
)
(SAME_TERM, IS_IRI, IS_BLANK, IS_LITERAL, STAMP, CALL, PART) = (
    int(each) for each in Operation if Operation.SAME_TERM <= each <= Operation.PART
)
(EQ, NE, LT, GT, LE, GE, ADD, SUBTRACT, MULTIPLY, DIVIDE, IS_NUMERIC) = (
    int(each) for each in Operation if Operation.EQ <= each <= Operation.IS_NUMERIC
)
(NEGATE, PLUS, ABS, FLOOR, CEIL, ROUND, YEAR) = (
    int(each) for each in Operation if Operation.NEGATE <= each <= Operation.YEAR
)
SECONDS, TO_BOOLEAN, TO_DOUBLE = int(Operation.SECONDS), int(Operation.TO_BOOLEAN), int(Operation.TO_DOUBLE)
