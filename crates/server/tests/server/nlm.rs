//! NLM and NSM on the wire: locks of clients of version 3, against each other and against those of
//! version 4; what waits; what a restart of either side does; and input of nobody's standard.

mod conflicts;
mod group;
mod host;
mod hostile;
mod registration;
mod restart;
mod waiting;
