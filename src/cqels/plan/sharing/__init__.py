"""What queries have in common: templates that differ in constants alone, and joins."""
