"""Live pipelines in this process: sources that go on, the durable inbox, and the run of an engine instance."""
