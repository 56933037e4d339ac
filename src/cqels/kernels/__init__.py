"""Compiled functions of arrays: no objects, no input or output. The only package that imports LLVM."""
