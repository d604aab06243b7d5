"""A mock of the model APIs: the newest prompt names a script, and the script says what the model answers."""
