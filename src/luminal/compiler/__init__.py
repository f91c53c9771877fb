"""The compiler: HLIR to a Program, one pure step after the other."""
