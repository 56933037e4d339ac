"""Static data: the dataset, updates of it, SERVICE and what may be reached; streams are not here."""
