"""The reference engine, which computes every answer anew from its definition: slow, and the judge of the others."""
