//! NFS client: mount options, connections, retry, failover, files.
