"""The scheduler: nine components that run exactly what is needed, and a facade that only delegates."""
