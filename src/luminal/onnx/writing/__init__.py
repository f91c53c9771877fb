"""Graphs as ONNX models: HLIR's primitives in operators of set 21."""
