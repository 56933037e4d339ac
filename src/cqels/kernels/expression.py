"""Expressions as programs: what a program looks like in the arena, and the interpreter that runs one for a row.

    word   of a program
    0      place of the memo
    1      where its request begins, counted from the program's first word (`cqels.kernels.memo`)
    2      where its code begins
    3      words of the program
    4      constants
    8 …    registers (`cqels.kernels.registers`): 0 the tick's time, 1 the result, 2 and 3 for variables on their way
           into an instruction, 4 an error, then constants and intermediate values
    then   request, code

An instruction is four words: operation, register of the result, and two operands.  An operand is a register, or `~n`
for word n of the row, which holds the word of a term.  BRANCH and CALL have more words: see `Operation`.

What the kernels cannot compute exactly is asked of Python: a *call*, of a function number and the words of its
arguments.  The number is

- MATERIALISE: the word of a value (tag, low, high, scale);
- TRUTH: the effective boolean value of a term;
- SETTLE: write the register of an entry into the dictionary; this one has no result and is not in the memo;
- that of an operation, whose operands need Python;
- from FIRST_FUNCTION on, a part of a query.

If the memo does not know the result, `evaluate` leaves the request in the program and gives NEED_CALL.  When the result
is in the memo, run it again: a program has no effect but its result, so nothing is done twice.
"""

from __future__ import annotations

from enum import IntEnum

from cqels.kernels.arithmetic import (
    DOWN,
    EXACT,
    NEAREST,
    TINY,
    UP,
    YEAR,
    absolute,
    add,
    cast,
    divide,
    divide_words,
    multiply,
    negate,
    part,
    plus,
    subtract,
    whole,
)
from cqels.kernels.jit import kernel
from cqels.kernels.memo import ARGUMENTS, FIRST_ARGUMENT, FUNCTION, RESULT, recall
from cqels.kernels.memory import load, store
from cqels.kernels.parts import spread_of
from cqels.kernels.registers import (
    ASK,
    BLANK,
    BOOLEAN,
    DECIMAL,
    FAULT,
    HIGH,
    INTEGER,
    IRI,
    LOW,
    NO,
    NONE,
    REGISTER_WORDS,
    SCALE,
    STRING,
    TAG,
    TEXT,
    UNORDERED,
    WORD,
    YES,
    compare,
    equal,
    find_word,
    is_number,
    move,
    put,
    put_decimal,
    put_error,
    put_moment,
    read,
    truth,
)
from cqels.kernels.rows import NEVER, NUMBER, TIME
from cqels.kernels.wide import POWERS, negate_wide
from cqels.model import ids

MEMO, REQUEST, CODE, LENGTH, CONSTANTS = range(5)
REGISTERS = 8
NOW_REGISTER, RESULT_REGISTER, FIRST_SCRATCH, SECOND_SCRATCH, ERROR_REGISTER, FREE_REGISTER = range(6)

DONE, NEED_CALL, FULL = 0, 1, 2
"""What a step gives: all is done; Python must answer the request; the arena is full."""


class Operation(IntEnum):
    """The operations: `t` is the register of the result, `a` and `b` the operands, `to` a place in the code."""

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


MATERIALISE, TRUTH, SETTLE, FIRST_FUNCTION = 0, 1, 2, 64

(END, MOVE, JUMP, AND_FIRST, AND, OR_FIRST, OR, NOT, BRANCH, UNLESS_ERROR, IF_ERROR, BOUND) = (
    int(each) for each in Operation if each <= Operation.BOUND
)
(SAME_TERM, IS_IRI, IS_BLANK, IS_LITERAL, STAMP, CALL, PART) = (
    int(each) for each in Operation if Operation.SAME_TERM <= each <= Operation.PART
)
(_EQ, _NE, _LT, _GT, _LE, _GE, _ADD, _SUBTRACT, _MULTIPLY, _DIVIDE, _IS_NUMERIC) = (
    int(each) for each in Operation if Operation.EQ <= each <= Operation.IS_NUMERIC
)
(_NEGATE, _PLUS, _ABS, _FLOOR, _CEIL, _ROUND, _YEAR) = (
    int(each) for each in Operation if Operation.NEGATE <= each <= Operation.YEAR
)
_SECONDS, _TO_BOOLEAN = int(Operation.SECONDS), int(Operation.TO_BOOLEAN)


_SPARE = 64 - ids.VALUE_BITS
_INTEGER_WORD = ids.CODE_INTEGER - (1 << ids.TYPE_BITS)  # what is left of a word that holds an integer
_DECIMAL_WORD = ids.CODE_DECIMAL - (1 << ids.TYPE_BITS)
_SCALES, _DECIMAL = 255, 256
_MOST_DIGITS = 9
_ROOT, _ROOM = 2**31, 2**33  # their products, and those with powers of ten of so many digits, fit in a word


@kernel
def evaluate(base, program, row, dictionary, now):
    """Run a program for a row: DONE with its result in the register RESULT_REGISTER, or NEED_CALL."""
    registers = program + REGISTERS
    store(base, registers + LOW, now)  # of NOW_REGISTER; find_word may have given it a word
    store(base, registers + WORD, 0)
    code = program + load(base, program + CODE)
    at = code
    while True:
        operation = load(base, at)
        if operation == END:
            return DONE
        target = registers + load(base, at + 1) * REGISTER_WORDS
        operand = load(base, at + 2)
        if operation >= _EQ:
            # what most often follows an operation is done with it: it reads the result, and nothing else does
            following = load(base, at + 4) if load(base, at + 6) == load(base, at + 1) else END
            if operation == _DIVIDE and _FLOOR <= following <= _ROUND:
                rounded = registers + load(base, at + 5) * REGISTER_WORDS
                if _quick_ratio(base, registers, row, following, rounded, operand, load(base, at + 3)):
                    at += 8
                    continue
            if operation < _IS_NUMERIC and _quick(base, registers, row, operation, target, operand, load(base, at + 3)):
                if operation < _ADD and AND_FIRST <= following <= OR:
                    answer = load(base, target + LOW)
                    at = _go_on(base, registers + load(base, at + 5) * REGISTER_WORDS, following, answer, at + 4, code)
                else:
                    at += 4
                continue
            a = _operand(base, program, row, dictionary, operand, FIRST_SCRATCH)
            if a == 0:
                return NEED_CALL
            b = 0
            if operation < _IS_NUMERIC:
                b = _operand(base, program, row, dictionary, load(base, at + 3), SECOND_SCRATCH)
                if b == 0:
                    return NEED_CALL
                done = _binary(base, dictionary, operation, target, a, b)
            else:
                done = _unary(base, operation, target, a)
            if not done and not _ask(base, program, dictionary, operation, target, a, b):
                return NEED_CALL
            at += 4
            continue
        if operation <= OR:
            at = _logic(base, program, operation, target, row, dictionary, operand, at, code)
            if at == 0:
                return NEED_CALL
            continue
        if operation == CALL:
            if not _call(base, program, row, dictionary, target, at):
                return NEED_CALL
            at += 4 + load(base, at + 3)
            continue
        at = _simple(base, program, operation, target, row, dictionary, operand, at, code)
        if at == 0:
            return NEED_CALL


@kernel
def holds(base, program, row, dictionary, now):
    """Whether a FILTER keeps a row: NO, YES or ASK, with a request. An error is no."""
    if evaluate(base, program, row, dictionary, now) == NEED_CALL:
        return ASK
    result = program + REGISTERS + RESULT_REGISTER * REGISTER_WORDS
    if load(base, result + TAG) == BOOLEAN:
        return YES if load(base, result + LOW) != 0 else NO
    answer = _truth(base, program, dictionary, result)
    return NO if answer == FAULT else answer


@kernel
def value(base, program, row, dictionary, now):
    """As `evaluate`; the register of the result has its word, 0 for an error."""
    if evaluate(base, program, row, dictionary, now) == NEED_CALL:
        return NEED_CALL
    return DONE if _materialise(base, program, program + REGISTERS + RESULT_REGISTER * REGISTER_WORDS) else NEED_CALL


@kernel
def result_word(base, program):
    """The word of the result, after `value`."""
    return load(base, program + REGISTERS + RESULT_REGISTER * REGISTER_WORDS + WORD)


@kernel
def _operand(base, program, row, dictionary, operand, scratch):
    """The register of an operand, a variable is read into a scratch register; 0 if Python must answer first."""
    if operand >= 0:
        return program + REGISTERS + operand * REGISTER_WORDS
    register = program + REGISTERS + scratch * REGISTER_WORDS
    if read(base, register, dictionary, load(base, row + ~operand)):
        return register
    request = program + load(base, program + REQUEST)
    store(base, request + FUNCTION, SETTLE)
    store(base, request + ARGUMENTS, 1)
    store(base, request + FIRST_ARGUMENT, load(base, row + ~operand))
    return 0


@kernel
def _quick(base, registers, row, operation, target, first, second):
    """An operation of two integers or decimals, each in one word: False for anything else, and for what is rare.

    The others come to the same result; this one calls no function on the way.
    """
    a, scale = _short(base, registers, row, first)
    b, other_scale = _short(base, registers, row, second)
    if scale < 0 or other_scale < 0:
        return False
    exact = max(scale, other_scale)
    tag = DECIMAL if exact & _DECIMAL else INTEGER
    scale &= _SCALES
    other_scale &= _SCALES
    exact &= _SCALES
    if operation == _MULTIPLY:
        if not (-_ROOT <= a <= _ROOT and -_ROOT <= b <= _ROOT):
            return False
        return _put_exact(base, target, tag, a * b, scale + other_scale)
    if scale < exact:
        if exact - scale > _MOST_DIGITS or not -_ROOM <= a <= _ROOM:
            return False
        a *= POWERS[exact - scale]
    elif other_scale < exact:
        if exact - other_scale > _MOST_DIGITS or not -_ROOM <= b <= _ROOM:
            return False
        b *= POWERS[exact - other_scale]
    if operation == _DIVIDE:
        if b == 0 or not (-EXACT < a < EXACT and -TINY < b < TINY):
            return False
        low, high, scale = divide_words(abs(a), abs(b))
        if (a < 0) != (b < 0):
            low, high = negate_wide(low, high)
        put_decimal(base, target, low, high, scale)
        return True
    if operation >= _ADD:
        result = a + b if operation == _ADD else a - b
        overflow = ((a ^ result) & (b ^ result)) if operation == _ADD else ((a ^ b) & (a ^ result))
        return overflow >= 0 and _put_exact(base, target, tag, result, exact)
    if operation == _LT:
        holds = a < b
    elif operation == _GT:
        holds = a > b
    elif operation == _LE:
        holds = a <= b
    elif operation == _GE:
        holds = a >= b
    elif operation == _EQ:
        holds = a == b
    else:
        holds = a != b
    put(base, target, BOOLEAN, 1 if holds else 0)
    return True


@kernel
def _quick_ratio(base, registers, row, way, target, first, second):
    """FLOOR, CEIL or ROUND of the quotient of two numbers in one word each: False for what is rare.

    A quotient is cut after 18 digits; the divisor is so small that this does not change what it is rounded to.
    """
    a, scale = _short(base, registers, row, first)
    b, other_scale = _short(base, registers, row, second)
    if scale < 0 or other_scale < 0:
        return False
    digits = (scale & _SCALES) - (other_scale & _SCALES)
    if not (-_MOST_DIGITS <= digits <= _MOST_DIGITS and -_ROOM <= a <= _ROOM and -_ROOM <= b <= _ROOM):
        return False
    if digits > 0:
        b *= POWERS[digits]
    else:
        a *= POWERS[-digits]
    if b == 0 or not (-EXACT < a < EXACT and -TINY < b < TINY):
        return False
    negative = (a < 0) != (b < 0)
    a, b = abs(a), abs(b)
    result = int(float(a) / float(b))  # exact, as in `divide_words`
    rest = a - result * b
    if way == _ROUND:
        away = 2 * rest > b or (2 * rest == b and not negative)
    else:
        away = rest != 0 and (way == _FLOOR) == negative
    if away:
        result += 1
    if negative:
        result = -result
    put_decimal(base, target, result, result >> 63, 0)
    return True


@kernel
def _short(base, registers, row, operand):
    """An operand that is an integer or a decimal in one word: the word, and its scale, _DECIMAL added for a decimal.

    For anything else the scale is negative.
    """
    if operand < 0:
        word = load(base, row + ~operand)
        value = word << _SPARE >> _SPARE
        code = word >> ids.VALUE_BITS
        if code == _INTEGER_WORD:
            return value, 0
        if code == _DECIMAL_WORD:
            return value >> ids.SCALE_BITS, _DECIMAL | word & ids.SCALE_MASK
        return 0, -1
    register = registers + operand * REGISTER_WORDS
    tag, low = load(base, register + TAG), load(base, register + LOW)
    if tag == INTEGER:
        return low, 0
    if tag == DECIMAL and load(base, register + HIGH) == low >> 63:
        return low, _DECIMAL | load(base, register + SCALE)
    return 0, -1


@kernel
def _put_exact(base, target, tag, value, scale):
    if tag == INTEGER:
        put(base, target, INTEGER, value)
    elif scale > _SCALES:
        return False
    else:
        put_decimal(base, target, value, value >> 63, scale)
    return True


# --- asking Python --------------------------------------------------------------------------------------------------


@kernel
def _materialise(base, program, register):
    """Give a register the word of its term: False if that needs Python first."""
    if find_word(base, register):
        return True
    request = program + load(base, program + REQUEST)
    store(base, request + FUNCTION, MATERIALISE)
    store(base, request + ARGUMENTS, 4)
    low = load(base, register + LOW)
    decimal = load(base, register + TAG) == DECIMAL
    store(base, request + FIRST_ARGUMENT, load(base, register + TAG))
    store(base, request + FIRST_ARGUMENT + 1, low)
    store(base, request + FIRST_ARGUMENT + 2, load(base, register + HIGH) if decimal else low >> 63)
    store(base, request + FIRST_ARGUMENT + 3, load(base, register + SCALE))
    if not recall(base, load(base, program + MEMO), request):
        return False
    store(base, register + WORD, load(base, request + RESULT))
    return True


@kernel
def _ask(base, program, dictionary, function, target, a, b):
    """Call a function of one register (b is 0) or two: False if Python must answer first."""
    if not _materialise(base, program, a) or (b != 0 and not _materialise(base, program, b)):
        return False
    request = program + load(base, program + REQUEST)
    store(base, request + FUNCTION, function)
    store(base, request + ARGUMENTS, 1 if b == 0 else 2)
    store(base, request + FIRST_ARGUMENT, load(base, a + WORD))
    if b != 0:
        store(base, request + FIRST_ARGUMENT + 1, load(base, b + WORD))
    if not recall(base, load(base, program + MEMO), request):
        return False
    read(base, target, dictionary, load(base, request + RESULT))
    return True


@kernel
def _call(base, program, row, dictionary, target, at):
    """The instruction CALL: False if Python must answer first."""
    registers = program + REGISTERS
    arguments = load(base, at + 3)
    for number in range(arguments):
        argument = load(base, at + 4 + number)
        if argument & 1 == 0 and not _materialise(base, program, registers + (argument >> 1) * REGISTER_WORDS):
            return False
    request = program + load(base, program + REQUEST)
    store(base, request + FUNCTION, load(base, at + 2))
    store(base, request + ARGUMENTS, arguments)
    for number in range(arguments):
        argument = load(base, at + 4 + number)
        operand = argument >> 1
        if operand < 0:
            place = row + ~operand
        else:
            place = registers + operand * REGISTER_WORDS + (LOW if argument & 1 else WORD)
        store(base, request + FIRST_ARGUMENT + number, load(base, place))
    if not recall(base, load(base, program + MEMO), request):
        return False
    read(base, target, dictionary, load(base, request + RESULT))
    return True


@kernel
def _truth(base, program, dictionary, register):
    """The effective boolean value of a register: NO, YES, FAULT, or ASK with a request."""
    answer = truth(base, dictionary, register)
    if answer != ASK:
        return answer
    request = program + load(base, program + REQUEST)
    store(base, request + FUNCTION, TRUTH)
    store(base, request + ARGUMENTS, 1)
    store(base, request + FIRST_ARGUMENT, load(base, register + WORD))
    if not recall(base, load(base, program + MEMO), request):
        return ASK
    word = load(base, request + RESULT)
    if word == 0:
        return FAULT
    return YES if word & 1 else NO


# --- operations -----------------------------------------------------------------------------------------------------


@kernel
def _logic(base, program, operation, target, row, dictionary, operand, at, code):
    """MOVE, JUMP, && and ||: where to go on, 0 if Python must answer first."""
    if operation == JUMP:
        return code + load(base, at + 3)
    a = _operand(base, program, row, dictionary, operand, FIRST_SCRATCH)
    if a == 0:
        return 0
    if operation == MOVE:
        move(base, target, a)
        return at + 4
    answer = _truth(base, program, dictionary, a)
    if answer == ASK:
        return 0
    if answer == FAULT:
        put_error(base, target)
        return at + 4
    return _go_on(base, target, operation, answer, at, code)


@kernel
def _go_on(base, target, operation, answer, at, code):
    """Where && and || go on when an operand is true or false."""
    stop = NO if operation <= AND else YES
    if answer == stop:
        put(base, target, BOOLEAN, stop)
        return code + load(base, at + 3)
    if operation in (AND_FIRST, OR_FIRST):
        put(base, target, BOOLEAN, answer)
    return at + 4


@kernel
def _simple(base, program, operation, target, row, dictionary, operand, at, code):
    """The other operations that need Python for the truth of a term at most: where to go on, 0 if they do."""
    if operation == STAMP:
        if load(base, row + TIME) == NEVER:
            put_error(base, target)
        elif operand == NUMBER:
            put(base, target, INTEGER, load(base, row + NUMBER))
        else:
            put_moment(base, target, load(base, row + operand))
        return at + 4
    if operation == BOUND:
        put(base, target, BOOLEAN, 1 if load(base, row + ~operand) != 0 else 0)
        return at + 4
    a = _operand(base, program, row, dictionary, operand, FIRST_SCRATCH)
    if a == 0:
        return 0
    tag = load(base, a + TAG)
    if operation == UNLESS_ERROR:
        return code + load(base, at + 3) if tag != NONE else at + 4
    if operation in (BRANCH, NOT):
        answer = _truth(base, program, dictionary, a)
        if answer == ASK:
            return 0
        if operation == NOT:
            if answer == FAULT:
                put_error(base, target)
            else:
                put(base, target, BOOLEAN, 1 - answer)
            return at + 4
        if answer == FAULT:
            put_error(base, target)
            return code + load(base, at + 4)
        return at + 5 if answer == YES else code + load(base, at + 3)
    if operation == SAME_TERM:
        b = _operand(base, program, row, dictionary, load(base, at + 3), SECOND_SCRATCH)
        if b == 0:
            return 0
        if tag == NONE or load(base, b + TAG) == NONE:
            put_error(base, target)
            return at + 4
        if not _materialise(base, program, a) or not _materialise(base, program, b):
            return 0
        put(base, target, BOOLEAN, 1 if load(base, a + WORD) == load(base, b + WORD) else 0)
        return at + 4
    if operation == PART and tag != NONE:
        parts = _operand(base, program, row, dictionary, load(base, at + 3), SECOND_SCRATCH)
        if parts == 0 or not _materialise(base, program, a):
            return 0
        number = spread_of(base, dictionary, load(base, a + WORD)) % load(base, parts + LOW)
        put(base, target, INTEGER, number)
        return at + 4
    if tag == NONE:
        put_error(base, target)
        return code + load(base, at + 3) if operation == IF_ERROR else at + 4
    if operation == IS_IRI:
        put(base, target, BOOLEAN, 1 if tag == IRI else 0)
    elif operation == IS_BLANK:
        put(base, target, BOOLEAN, 1 if tag == BLANK else 0)
    elif operation == IS_LITERAL:
        put(base, target, BOOLEAN, 1 if tag >= STRING else 0)
    return at + 4


@kernel
def _binary(base, dictionary, operation, target, a, b):
    """An operation of two operands: False if it needs Python."""
    if operation >= _ADD:
        if operation == _ADD:
            return add(base, target, a, b)
        if operation == _SUBTRACT:
            return subtract(base, target, a, b)
        if operation == _MULTIPLY:
            return multiply(base, target, a, b)
        return divide(base, target, a, b)
    if operation <= _NE:
        answer = equal(base, dictionary, a, b)
        if answer == ASK:
            return False
        if answer == FAULT:
            put_error(base, target)
        else:
            put(base, target, BOOLEAN, answer if operation == _EQ else 1 - answer)
        return True
    answer = compare(base, dictionary, a, b)
    if answer == ASK:
        return False
    if answer == FAULT:
        put_error(base, target)
        return True
    if answer == UNORDERED:
        result = False
    elif operation == _LT:
        result = answer < 0
    elif operation == _GT:
        result = answer > 0
    elif operation == _LE:
        result = answer <= 0
    else:
        result = answer >= 0
    put(base, target, BOOLEAN, 1 if result else 0)
    return True


@kernel
def _unary(base, operation, target, a):
    """An operation of one operand: False if it needs Python."""
    if operation == _NEGATE:
        return negate(base, target, a)
    if operation == _PLUS:
        return plus(base, target, a)
    if operation == _ABS:
        return absolute(base, target, a)
    if operation <= _ROUND and operation >= _FLOOR:
        way = DOWN if operation == _FLOOR else UP if operation == _CEIL else NEAREST
        return whole(base, target, a, way)
    if operation == _IS_NUMERIC:
        tag = load(base, a + TAG)
        if tag == TEXT:
            return False
        if tag == NONE:
            put_error(base, target)
        else:
            put(base, target, BOOLEAN, 1 if is_number(tag) else 0)
        return True
    if operation <= _SECONDS:
        return part(base, target, a, YEAR + operation - _YEAR)
    return cast(base, target, a, BOOLEAN + operation - _TO_BOOLEAN)  # the tags follow each other
