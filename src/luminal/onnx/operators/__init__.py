"""What each operator of ONNX is in the library, a module a family; see `luminal.onnx.table`."""
