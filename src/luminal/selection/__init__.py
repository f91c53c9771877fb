"""Selection: which programs of the e-graph become kernels, by costs and by what devices like."""
