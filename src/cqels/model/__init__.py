"""The vocabulary that all layers share: terms, values, times, errors; nothing here reads, plans or runs anything."""
