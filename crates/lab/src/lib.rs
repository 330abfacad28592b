//! Network namespaces with shaped links.
