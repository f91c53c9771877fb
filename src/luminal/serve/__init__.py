"""A language model behind OpenAI's HTTP API, many clients at a time: see `docs/serving.md`."""
