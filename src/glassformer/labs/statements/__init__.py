"""Our labs, one file each: statement, solution, terms, typical mistakes and hints."""
