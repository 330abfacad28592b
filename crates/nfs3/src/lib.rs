//! NFS version 3 and MOUNT version 3 messages (RFC 1813).
