//! What is behind an export: the store interface and the memory store.
