//! Tests every operation against bytes that were written by hand from the XDR of the standards, RFC
//! 5662 and RFC 7863: the bytes decode to the value, the value encodes to the bytes, and no part of
//! the bytes decodes. The names beside the bytes are those of the standards.

mod callbacks;
mod files;
mod layouts;
mod opens;
mod sessions;
mod support;
mod version_4_2;
