"""What queries send: emissions, policies and Arrow columns of results."""
