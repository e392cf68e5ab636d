"""The rules of the verifier, one function each. Rules only read and report."""
