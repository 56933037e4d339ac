"""How kernels are compiled: from the text of a Python function to machine code that is kept on disk."""
