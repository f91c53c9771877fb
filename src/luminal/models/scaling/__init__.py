"""What training a decoder on many ranks would take, predicted: step, memory, and the best plan.

`shapes.py` has models and chips by name, `parts.py` prices the parts that a model is made of,
`plan.py` says what a plan is, `predict.py` what a step takes by it, `search.py` finds the best one,
and `table.py` shows it.
"""
