"""The arena and its allocator, 128-bit integers and bytes at raw addresses: what every kernel stands on."""
