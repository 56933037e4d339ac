"""Expressions of a query as programs: opcodes, registers, and the interpreter that runs them for a row."""
