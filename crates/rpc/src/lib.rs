//! ONC RPC version 2: calls, replies, record marking, credentials, reply cache (RFC 5531).
