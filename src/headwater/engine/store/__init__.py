"""Where a space is kept. `port` is what the engine needs of any database; `sqlite` is the one that ships."""
