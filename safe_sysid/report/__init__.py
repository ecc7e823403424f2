"""What a run leaves for people and programs: summary JSON, tables, pictures. matplotlib loads late."""
