"""`cqels serve`: a live pipeline over HTTP. Starlette and uvicorn are imported here alone: `cqels[serve]`."""
