//! What stands before a queue of a controller whose host must authenticate. NVMe Base,
//! "Authentication Requirements", "Connect Response" (ATR).
//!
//! The driver asks [`Gate::admit`] about each command before the queue's own machine sees it. Those
//! of authentication, the gate answers; all others are refused until the host is authenticated, and
//! pass from then on. Each queue has a gate of its own: a host authenticates on every one.
//!
//! The driver executes the commands of authentication of a queue one after the other, says so in
//! the answer to Connect ([`Gate::announce`]), and closes the connection once an answer with
//! [`Outcome::Failed`] is sent, or if a transaction takes too long.

use crate::command;
use crate::controller::{Controller, NoRoom, Outcome};
use crate::credentials::{Algorithms, Credentials};
use crate::entropy::Entropy;
use crate::message::SENT_BYTES_MAX;
use nvme::fabrics::{Connected, FabricsType};
use nvme::{AdminOpcode, Sqe, Status};
use std::sync::Arc;

/// The most room that a host may ask for a message, which is filled with zeros. Linux asks for 4096
/// bytes.
pub const ROOM_BYTES_MAX: usize = 16384;

/// What becomes of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It is the queue's.
    Pass,
    /// Answer it with this status.
    Refuse(Status),
    /// Take its data, then call [`Gate::handle_send`].
    Send {
        /// The length of the data.
        bytes: usize,
    },
    /// Call [`Gate::handle_receive`].
    Receive {
        /// The length of the data for the host.
        room: usize,
    },
}

/// Whether the commands of a queue may pass.
#[derive(Debug)]
pub struct Gate {
    controller: Controller,
}

impl Gate {
    /// The gate of a queue that was just connected.
    #[must_use]
    pub const fn new(credentials: Arc<Credentials>, algorithms: Arc<Algorithms>) -> Self {
        Self { controller: Controller::new(credentials, algorithms) }
    }

    /// The result of Connect, which tells the host to authenticate.
    #[must_use]
    pub fn announce(result: u64) -> u64 {
        Connected { authentication_required: true, ..Connected::of(result) }.result()
    }

    /// Sets what the next transaction uses. One that goes on ends with what it has begun with.
    pub fn renew(&mut self, credentials: Arc<Credentials>, algorithms: Arc<Algorithms>) {
        self.controller.renew(credentials, algorithms);
    }

    /// Whether a transaction has succeeded, and none has failed since: all commands pass.
    #[must_use]
    pub const fn is_authenticated(&self) -> bool {
        self.controller.is_authenticated()
    }

    /// Whether a transaction goes on, or none has succeeded. The caller bounds the time of either.
    #[must_use]
    pub const fn is_waiting(&self) -> bool {
        !self.controller.is_authenticated() || self.controller.is_in_progress()
    }

    /// What becomes of this command.
    #[must_use]
    pub fn admit(&self, sqe: &Sqe) -> Admission {
        let fctype = (sqe.opcode == AdminOpcode::FABRICS.0).then(|| FabricsType::of(sqe));
        let admission = match fctype {
            Some(FabricsType::AUTHENTICATION_SEND) => {
                command::check(sqe, SENT_BYTES_MAX).map(|bytes| Admission::Send { bytes })
            }
            Some(FabricsType::AUTHENTICATION_RECEIVE) => {
                command::check(sqe, ROOM_BYTES_MAX).map(|room| Admission::Receive { room })
            }
            _ if self.controller.is_authenticated() => Ok(Admission::Pass),
            _ => Err(Status::AUTHENTICATION_REQUIRED.no_retry()),
        };
        admission.unwrap_or_else(Admission::Refuse)
    }

    /// Takes the data of an Authentication Send, which succeeds in any case.
    pub fn handle_send(&mut self, data: &[u8], entropy: &Entropy) -> Outcome {
        self.controller.handle_send(data, entropy)
    }

    /// The data for an Authentication Receive, as many as there is room for.
    ///
    /// # Errors
    /// [`NoRoom`]: answer with [`Status::INVALID_FIELD`].
    pub fn handle_receive(&mut self, room: usize) -> Result<(Vec<u8>, Outcome), NoRoom> {
        let (mut data, outcome) = self.controller.handle_receive(room)?;
        // Success with fewer bytes than the host asked for makes newer kernels reset.
        data.resize(room, 0);
        Ok((data, outcome))
    }
}
