//! Carries RPC records whose payload is marked: TCP, in-process, fault injection.
