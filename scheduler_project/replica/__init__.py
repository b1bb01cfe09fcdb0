"""The replica's state.db as Django sees it: a database that can only be read, for a short while at a time."""
