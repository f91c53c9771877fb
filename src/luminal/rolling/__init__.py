"""Rolling: equal layers of a graph become one Loop, so that compiling costs one layer."""
