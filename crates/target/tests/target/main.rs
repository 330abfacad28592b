//! A target as its hosts see it, over real sockets: the host's state machines of `nvme` against it.

mod authentication;
mod data;
mod discovery;
mod forward;
mod forwarding_late;
mod fused;
mod groups;
mod hangs;
mod hostile;
mod late;
mod life;
mod moving;
mod nodes;
mod peer;
mod reservations;
mod resets;
mod unix_relay;
mod unseen_end;
