"""What a run leaves for people and programs: summary JSON, tables, pictures. Imported piece by piece: matplotlib is heavy."""
