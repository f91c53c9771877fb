"""Arrays in memory: Parameters and States, data that users give, DLPack, alignment."""
