"""What an identification leaves: result, tables, pictures, HTML."""
