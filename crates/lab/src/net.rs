//! A network of a client, some nodes, and a shaped link from the client to each node.
//!
//! ```text
//!   namespace `client`                                    namespace `nodes` (or `node1`, `node2`, ...)
//!     n1  10.77.1.1  fd77:1::1  ======== 1 Gbit/s ========  n1  10.77.1.2  fd77:1::2
//!     n2  10.77.2.1  fd77:2::1  ======== 1 Gbit/s ========  n2  10.77.2.2  fd77:2::2
//! ```
//!
//! The client forwards nothing.
//!
//! Each link is a pair of virtual Ethernet devices, shaped at both ends by a token bucket, so that
//! the rate applies in both directions. A link has a name, `n1` and so on, and can be
//!
//! - cut: both ends lose their carrier, as when a cable is pulled;
//! - made silent: packets leave both ends but are not received, as when a switch in between fails.
//!   This needs no packet filter: each end is given a hardware address for the other that no device
//!   has;
//! - restored from either.
//!
//! A lab needs root and the programs `ip` and `tc` (Debian: iproute2). The kernel needs veth and
//! sch_tbf, and sch_netem only for a delay.

mod error;
mod leftovers;
mod link;
mod run;
mod spec;
mod state;
mod system;

pub use error::Error;
pub(crate) use leftovers::Owner;
pub use leftovers::remove_leftovers;
pub use link::{Condition, Link};
pub use run::{exec, run};
pub use spec::{Layout, NODES_MAX, Rate, Spec};
pub use state::{State, find, list};

use std::process::Command;

/// A running lab. When it is dropped, the processes in its namespaces are ended and the namespaces
/// removed.
#[derive(Debug)]
pub struct Net {
    state: State,
    stopped: bool,
}

impl Net {
    /// Creates the namespaces and links, after removing those that killed labs left.
    ///
    /// # Errors
    /// Without root, without the programs, with a kernel that lacks a feature, or if the system
    /// refuses. Nothing of the lab is left then.
    pub fn start(spec: &Spec) -> Result<Self, Error> {
        system::require_root()?;
        system::require_programs()?;
        spec.validate()?;
        remove_leftovers()?;
        // From here on, dropping `net` undoes everything.
        let net = Self { state: State::create(spec)?, stopped: false };
        for namespace in net.state.namespaces() {
            system::ip(&["netns", "add", &namespace])?;
            system::ip(&["-n", &namespace, "link", "set", "lo", "up"])?;
        }
        for link in net.state.links() {
            link.build(&net.state)?;
        }
        // A new namespace has the host's setting.
        let off = "echo 0 > /proc/sys/net/ipv4/ip_forward";
        system::ip(&["netns", "exec", &net.state.full_name("client"), "sh", "-c", off])?;
        Ok(net)
    }

    /// The lab's name in `trunkline lab list`.
    #[must_use]
    pub fn id(&self) -> &str {
        self.state.id()
    }

    /// The parts of the lab.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The links, one for each node, in order.
    #[must_use]
    pub fn links(&self) -> &[Link] {
        self.state.links()
    }

    /// Cuts the link with this name.
    ///
    /// # Errors
    /// If there is no such link, or the system refuses.
    pub fn cut(&self, link: &str) -> Result<(), Error> {
        self.state.cut(link)
    }

    /// Makes the link with this name silent.
    ///
    /// # Errors
    /// If there is no such link, or the system refuses.
    pub fn drop_silently(&self, link: &str) -> Result<(), Error> {
        self.state.drop_silently(link)
    }

    /// Restores the link with this name from either state.
    ///
    /// # Errors
    /// If there is no such link, or the system refuses.
    pub fn restore(&self, link: &str) -> Result<(), Error> {
        self.state.restore(link)
    }

    /// The same command, to be run in a namespace of this lab: `client`, `nodes`, or `node1` and so
    /// on if each node has its own.
    ///
    /// # Errors
    /// If there is no such namespace.
    pub fn exec_in(&self, namespace: &str, command: &Command) -> Result<Command, Error> {
        self.state.exec_in(namespace, command)
    }

    /// Ends the processes in the lab and removes the lab, and reports errors.
    ///
    /// # Errors
    /// If a namespace cannot be removed.
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
