"""Expressions as programs: what a program looks like in the arena, and the interpreter that runs one for a row.

    word   of a program
    0      offset of the memo
    1      where its request begins, counted from the program's first word (`cqels.kernels.expressions.call_cache`)
    2      where its code begins
    3      words of the program
    4      constants
    8 …    registers (`registers.py`): 0 the tick's time, 1 the result, 2 and 3 for variables on their way into an
           instruction, 4 an error, then constants and intermediate values
    then   request, code

An instruction is four words: operation, register of the result, and two operands.  An operand is a register, or `~n`
for word n of the row, which holds the word of a term.  BRANCH and CALL have more words: see `operations.Operation`.

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

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.containers.delta_queue import NEVER, NUMBER, TIME
from cqels.kernels.expressions.call_cache import ARGUMENTS, FIRST_ARGUMENT, FUNCTION, RESULT, recall
from cqels.kernels.expressions.fast_arithmetic import as_double, quick, quick_ratio
from cqels.kernels.expressions.opcodes import (
    ABS,
    ADD,
    AND,
    AND_FIRST,
    BOUND,
    BRANCH,
    CALL,
    CEIL,
    DIVIDE,
    END,
    EQ,
    FLOOR,
    GT,
    IF_ERROR,
    IS_BLANK,
    IS_IRI,
    IS_LITERAL,
    IS_NUMERIC,
    JUMP,
    LE,
    LT,
    MOVE,
    MULTIPLY,
    NE,
    NEGATE,
    NOT,
    OR,
    OR_FIRST,
    PART,
    PLUS,
    ROUND,
    SAME_TERM,
    SECONDS,
    STAMP,
    SUBTRACT,
    TO_BOOLEAN,
    TO_DOUBLE,
    UNLESS_ERROR,
)
from cqels.kernels.expressions.opcodes import YEAR as YEAR_OF
from cqels.kernels.expressions.register_arithmetic import (
    DOWN,
    NEAREST,
    UP,
    YEAR,
    absolute,
    add,
    cast,
    divide,
    multiply,
    negate,
    part,
    plus,
    subtract,
    whole,
)
from cqels.kernels.expressions.registers import (
    ASK,
    BLANK,
    BOOLEAN,
    DECIMAL,
    DOUBLE,
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
    put_double,
    put_error,
    put_moment,
    read,
    truth,
)
from cqels.kernels.memory.arena import load, store
from cqels.kernels.terms.term_partition import spread_of

MEMO, REQUEST, CODE, LENGTH, CONSTANTS = range(5)
REGISTERS = 8
NOW_REGISTER, RESULT_REGISTER, FIRST_SCRATCH, SECOND_SCRATCH, ERROR_REGISTER, FREE_REGISTER = range(6)

DONE, NEED_CALL, FULL = 0, 1, 2
"""What a step gives: all is done; Python must answer the request; the arena is full."""


MATERIALISE, TRUTH, SETTLE, FIRST_FUNCTION = 0, 1, 2, 64


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
        if operation >= EQ:
            # what most often follows an operation is done with it: it reads the result, and nothing else does
            following = load(base, at + 4) if load(base, at + 6) == load(base, at + 1) else END
            if operation == DIVIDE and FLOOR <= following <= ROUND:
                rounded = registers + load(base, at + 5) * REGISTER_WORDS
                if quick_ratio(base, registers, row, following, rounded, operand, load(base, at + 3)):
                    at += 8
                    continue
            if operation < IS_NUMERIC and quick(base, registers, row, operation, target, operand, load(base, at + 3)):
                if operation < ADD and AND_FIRST <= following <= OR:
                    answer = load(base, target + LOW)
                    at = _go_on(base, registers + load(base, at + 5) * REGISTER_WORDS, following, answer, at + 4, code)
                else:
                    at += 4
                continue
            if operation == TO_DOUBLE:
                number, exact = as_double(base, registers, row, operand)
                if exact:
                    put_double(base, target, DOUBLE, number)
                    at += 4
                    continue
            a = _operand(base, program, row, dictionary, operand, FIRST_SCRATCH)
            if a == 0:
                return NEED_CALL
            b = 0
            if operation < IS_NUMERIC:
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
            offset = row + ~operand
        else:
            offset = registers + operand * REGISTER_WORDS + (LOW if argument & 1 else WORD)
        store(base, request + FIRST_ARGUMENT + number, load(base, offset))
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
    if operation >= ADD:
        if operation == ADD:
            return add(base, target, a, b)
        if operation == SUBTRACT:
            return subtract(base, target, a, b)
        if operation == MULTIPLY:
            return multiply(base, target, a, b)
        return divide(base, target, a, b)
    if operation <= NE:
        answer = equal(base, dictionary, a, b)
        if answer == ASK:
            return False
        if answer == FAULT:
            put_error(base, target)
        else:
            put(base, target, BOOLEAN, answer if operation == EQ else 1 - answer)
        return True
    answer = compare(base, dictionary, a, b)
    if answer == ASK:
        return False
    if answer == FAULT:
        put_error(base, target)
        return True
    if answer == UNORDERED:
        result = False
    elif operation == LT:
        result = answer < 0
    elif operation == GT:
        result = answer > 0
    elif operation == LE:
        result = answer <= 0
    else:
        result = answer >= 0
    put(base, target, BOOLEAN, 1 if result else 0)
    return True


@kernel
def _unary(base, operation, target, a):
    """An operation of one operand: False if it needs Python."""
    if operation == NEGATE:
        return negate(base, target, a)
    if operation == PLUS:
        return plus(base, target, a)
    if operation == ABS:
        return absolute(base, target, a)
    if operation <= ROUND and operation >= FLOOR:
        way = DOWN if operation == FLOOR else UP if operation == CEIL else NEAREST
        return whole(base, target, a, way)
    if operation == IS_NUMERIC:
        tag = load(base, a + TAG)
        if tag == TEXT:
            return False
        if tag == NONE:
            put_error(base, target)
        else:
            put(base, target, BOOLEAN, 1 if is_number(tag) else 0)
        return True
    if operation <= SECONDS:
        return part(base, target, a, YEAR + operation - YEAR_OF)
    return cast(base, target, a, BOOLEAN + operation - TO_BOOLEAN)  # the tags follow each other
