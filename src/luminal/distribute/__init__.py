"""One program for many ranks: from a graph, a mesh and marks to the graph that every rank runs."""
