"""Values that go from rank to rank: what carries them, how ranks start and how they fail."""
