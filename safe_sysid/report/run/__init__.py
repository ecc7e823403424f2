"""What a run leaves: facts, tables, pictures, HTML."""
