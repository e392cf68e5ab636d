"""The store in this process's memory: the executable specification of the contract."""
