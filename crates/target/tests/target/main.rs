//! A target as its hosts see it, over real sockets: the host's state machines of `nvme` against it.

mod data;
mod discovery;
mod groups;
mod hostile;
mod life;
mod peer;
