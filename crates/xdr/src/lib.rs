//! Bounded reading and writing of XDR (RFC 4506).
