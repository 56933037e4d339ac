"""Event time: batches of elements, watermarks, reordering, merging of streams and the limit on future times."""
