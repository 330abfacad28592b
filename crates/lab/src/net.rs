//! A client, some nodes, and a shaped link from the client to each node.
//!
//! ```text
//!   namespace `client`                                    namespace `nodes` (or `node1`, `node2`, ...)
//!     n1  10.77.1.1  fd77:1::1  ======== 1 Gbit/s ========  n1  10.77.1.2  fd77:1::2
//!     n2  10.77.2.1  fd77:2::1  ======== 1 Gbit/s ========  n2  10.77.2.2  fd77:2::2
//! ```
//!
//! Each link is a pair of virtual Ethernet devices, shaped at both ends by a token bucket, so that
//! a rate holds in both directions. A link is known by its name, `n1` and so on, and can be
//!
//! - cut: both ends lose their carrier, as when a cable is pulled;
//! - made silent: packets leave both ends and nobody receives them, as when a switch in between
//!   dies. No packet filter is needed for that: each end is told a hardware address of the other
//!   that nobody has;
//! - restored from either.
//!
//! Needs root, and the programs `ip` and `tc` (Debian: iproute2). The kernel needs veth and
//! sch_tbf, and sch_netem only where a delay is asked for.

mod error;
mod leftovers;
mod link;
mod run;
mod spec;
mod state;
mod system;

pub use error::Error;
pub(crate) use leftovers::Owner;
pub use leftovers::collect;
pub use link::{Condition, Link};
pub use run::{exec, run};
pub use spec::{Layout, NODES_MAX, Rate, Spec};
pub use state::{State, find, list};

use std::process::Command;

/// A running lab. Dropping it ends what still runs in its namespaces and removes them.
#[derive(Debug)]
pub struct Net {
    state: State,
    stopped: bool,
}

impl Net {
    /// Builds the namespaces and links; first collects what killed labs left.
    ///
    /// # Errors
    /// Not root, programs missing, a kernel without what is asked for, or the system's own refusal.
    /// Nothing of the lab is left then.
    pub fn start(spec: &Spec) -> Result<Self, Error> {
        system::require_root()?;
        system::require_programs()?;
        spec.validate()?;
        collect()?;
        // From here on the drop of `net` undoes whatever was done.
        let net = Self { state: State::create(spec)?, stopped: false };
        for namespace in net.state.namespaces() {
            system::ip(&["netns", "add", &namespace])?;
            system::ip(&["-n", &namespace, "link", "set", "lo", "up"])?;
        }
        for link in net.state.links() {
            link.build(&net.state)?;
        }
        Ok(net)
    }

    /// The lab's name in `trunkline lab list`.
    #[must_use]
    pub fn id(&self) -> &str {
        self.state.id()
    }

    /// What the lab consists of.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The links, one for each node, in order.
    #[must_use]
    pub fn links(&self) -> &[Link] {
        self.state.links()
    }

    /// Pulls the cable of a link, by name.
    ///
    /// # Errors
    /// No such link, or the system's refusal.
    pub fn cut(&self, link: &str) -> Result<(), Error> {
        self.state.cut(link)
    }

    /// Lets a link lose everything without a word, by name.
    ///
    /// # Errors
    /// No such link, or the system's refusal.
    pub fn drop_silently(&self, link: &str) -> Result<(), Error> {
        self.state.drop_silently(link)
    }

    /// Heals a link, by name, whatever ailed it.
    ///
    /// # Errors
    /// No such link, or the system's refusal.
    pub fn restore(&self, link: &str) -> Result<(), Error> {
        self.state.restore(link)
    }

    /// The same command, run in a namespace of this lab: `client`, `nodes`, or `node1` and so on
    /// where each node has its own.
    ///
    /// # Errors
    /// No such namespace.
    pub fn exec_in(&self, namespace: &str, command: &Command) -> Result<Command, Error> {
        self.state.exec_in(namespace, command)
    }

    /// Ends what still runs in the lab and removes it, telling what went wrong.
    ///
    /// # Errors
    /// A namespace that cannot be removed.
    pub fn stop(mut self) -> Result<(), Error> {
        self.stopped = true;
        self.state.remove()
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        if !self.stopped
            && let Err(error) = self.state.remove()
        {
            tracing::warn!("lab {}: {error}; the next lab will try again", self.state.id());
        }
    }
}
