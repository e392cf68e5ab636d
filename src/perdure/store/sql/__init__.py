"""What the SQL backends share: reading statements from files and applying migrations in order."""
