"""Operations: what can be asked of a store, under one name on every interface."""
