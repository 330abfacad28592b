//! Asks a discovery service which subsystems there are.

use crate::error::{Error, Lost, Refusal};
use crate::queue::{Event, Memory, Payload, Queue, Settings, Slice};
use nvme::host::{Command, CommandData, DiscoveryReader, HostConfig, HostOutput, Initiator, Reading, Role};
use nvme::log_page::{DiscoveryLog, GetLogPage, SubsystemType, TransportType};
use nvme::pdu::Digests;
use nvme::{Address, HostId, Nqn, Sgl, Transport};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use transport::poll::{Events, Poller};

/// Tags of commands that are not the machine's.
const LOG: u64 = 1 << 32;

/// A subsystem and the addresses of its controllers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its name.
    pub subsystem: Nqn,
    /// Where it is reached over TCP and RDMA.
    pub addresses: Vec<Address>,
}

#[derive(Debug, Default)]
struct Rooms(BTreeMap<u64, Vec<u8>>);

impl Memory for Rooms {
    fn room(&mut self, tag: u64) -> Option<&mut [u8]> {
        self.0.get_mut(&tag).map(Vec::as_mut_slice)
    }
}

/// Reads the discovery log at an address.
///
/// # Errors
/// [`Error::NoDiscovery`] if there is none in time, [`Error::Refused`],
/// [`Error::Discovery`].
pub fn discover(
    address: impl Into<Address>,
    host: &Nqn,
    host_id: HostId,
    within: Duration,
) -> Result<Vec<Found>, Error> {
    let address = address.into();
    let missing = |lost: &Lost| Error::NoDiscovery { address, cause: lost.to_string() };
    let mut session = Session::open(address, within).map_err(|lost| missing(&lost))?;
    let config = HostConfig {
        host: host.clone(),
        host_id,
        subsystem: Nqn::discovery(),
        role: Role::Discovery,
        entries: 32,
        keep_alive: Duration::ZERO,
        flow_control: false,
        keyed: address.transport == Transport::Rdma,
    };
    session.read(config, address).map_err(|failed| match failed {
        Failed::Lost(Lost::Failed(nvme::host::Failure::Command(_, status))) => {
            Error::Refused { address, refusal: Refusal::Connect(status) }
        }
        Failed::Lost(Lost::Refused(refusal)) => Error::Refused { address, refusal },
        Failed::Lost(lost) => missing(&lost),
        Failed::Log(error) => Error::Discovery(error),
    })
}

enum Failed {
    Lost(Lost),
    Log(nvme::host::DiscoveryError),
}

impl From<Lost> for Failed {
    fn from(lost: Lost) -> Self {
        Self::Lost(lost)
    }
}

struct Session {
    poller: Poller,
    queue: Queue,
    rooms: Rooms,
    deadline: Instant,
    began: Instant,
    scratch: Vec<u8>,
    next_tag: u64,
}

impl Session {
    fn open(address: Address, within: Duration) -> Result<Self, Lost> {
        let poller = Poller::new().map_err(Lost::Socket)?;
        let digests = Digests::default();
        let queue = Queue::connect(&Settings { address, qid: 0, entries: 32, digests })?;
        queue.register(&poller, 0)?;
        let began = Instant::now();
        let scratch = vec![0; 16 << 10];
        let rooms = Rooms::default();
        Ok(Self { poller, queue, rooms, deadline: began + within, began, scratch, next_tag: LOG })
    }

    fn submit(&mut self, tag: u64, command: Command) -> Result<(), Lost> {
        let payload = match command.data {
            CommandData::None => Payload::None,
            CommandData::Send(data) => {
                let bytes = data.len();
                Payload::Send(Slice { memory: Arc::new(data), start: 0, bytes })
            }
            CommandData::Receive(bytes) => {
                self.rooms.0.insert(tag, vec![0; bytes as usize]);
                Payload::Receive(bytes)
            }
        };
        self.queue.submit(&command.sqe, tag, payload).map_err(|_| Lost::Misuse)?;
        self.queue.send()
    }

    /// Waits for the next events.
    fn wait(&mut self, due: Option<Duration>) -> Result<Vec<Event>, Lost> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Lost::ConnectTimeout);
        }
        let due = due.map_or(left, |due| due.saturating_sub(self.began.elapsed()));
        self.queue.watch(&self.poller, 0)?;
        let (mut ready, mut events) = (Events::new(), Vec::new());
        self.poller.wait(&mut ready, Some(left.min(due))).map_err(Lost::Socket)?;
        for event in ready.iter() {
            if event.writable {
                self.queue.handle_writable()?;
            }
            if event.readable {
                self.queue.receive(&mut self.rooms, &mut self.scratch, &mut events)?;
            }
        }
        Ok(events)
    }

    fn read_part(&mut self, part: &GetLogPage) -> Result<(), Lost> {
        let bytes = u32::try_from(part.bytes).unwrap_or(u32::MAX);
        let sqe = part.command(0, Sgl::NONE);
        self.next_tag += 1;
        self.submit(self.next_tag, Command { sqe, data: CommandData::Receive(bytes) })
    }

    fn read(&mut self, config: HostConfig, asked: Address) -> Result<Vec<Found>, Failed> {
        let mut config = Some(config);
        let mut machine: Option<Initiator> = None;
        let mut reader: Option<DiscoveryReader> = None;
        loop {
            let due = machine.as_ref().and_then(Initiator::poll_timeout);
            for event in self.wait(due)? {
                let (tag, cqe) = match event {
                    Event::Ready => {
                        let config = config.take();
                        machine = config.map(|config| Initiator::new(self.began.elapsed(), config));
                        continue;
                    }
                    Event::Completed { tag, cqe } => (tag, cqe),
                };
                let data = self.rooms.0.remove(&tag).unwrap_or_default();
                if tag < LOG {
                    let id = u32::try_from(tag).unwrap_or(u32::MAX);
                    if let Some(machine) = &mut machine {
                        machine.handle_completion(self.began.elapsed(), id, &cqe, &data);
                    }
                    continue;
                }
                let data = if cqe.status.is_success() { data } else { Vec::new() };
                match reader.as_mut().map(|reader| reader.handle_part(&data)) {
                    Some(Ok(Reading::Read(part))) => self.read_part(&part)?,
                    Some(Ok(Reading::Complete(log))) => return Ok(found(&log, asked)),
                    Some(Err(error)) => return Err(Failed::Log(error)),
                    None => {}
                }
            }
            let Some(machine) = &mut machine else { continue };
            machine.handle_timeout(self.began.elapsed());
            while let Some(output) = machine.poll_output() {
                match output {
                    HostOutput::Admin { id, command } => self.submit(id.into(), command)?,
                    HostOutput::Live(_) => {
                        let (new, part) = DiscoveryReader::new();
                        reader = Some(new);
                        self.read_part(&part)?;
                    }
                    HostOutput::Authenticate { .. } => {
                        return Err(Lost::Refused(Refusal::SecretNeeded).into());
                    }
                    HostOutput::Failed(failure) => return Err(Lost::Failed(failure).into()),
                    _ => {}
                }
            }
        }
    }
}

/// The subsystems of a log that are reached over TCP or RDMA. An entry without an address means the
/// one that was asked.
fn found(log: &DiscoveryLog, asked: Address) -> Vec<Found> {
    let mut all: Vec<Found> = Vec::new();
    for entry in &log.entries {
        let transport = match entry.transport {
            TransportType::TCP => Transport::Tcp,
            TransportType::RDMA => Transport::Rdma,
            _ => continue,
        };
        if entry.subsystem_type != SubsystemType::NVM {
            continue;
        }
        let Ok(subsystem) = entry.subsystem() else { continue };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        let ip = text(entry.address()).parse::<IpAddr>().unwrap_or(asked.socket.ip());
        let Ok(port) = text(entry.service()).parse() else { continue };
        let address = Address { socket: SocketAddr::new(ip, port), transport };
        match all.iter_mut().find(|one| one.subsystem == subsystem) {
            Some(one) if one.addresses.contains(&address) => {}
            Some(one) => one.addresses.push(address),
            None => all.push(Found { subsystem, addresses: vec![address] }),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvme::log_page::DiscoveryEntry;

    #[test]
    fn a_subsystem_has_the_addresses_of_both_transports_and_none_of_others() {
        let subnqn = |name: &str| Nqn::new(name).expect("a name").encode();
        let entry = |transport, address, service| {
            let mut entry = DiscoveryEntry {
                transport,
                subsystem_type: SubsystemType::NVM,
                subnqn: subnqn("nqn.2026-11.test:array"),
                ..DiscoveryEntry::default()
            };
            entry.set_address(address, service);
            entry
        };
        let entries = vec![
            entry(TransportType::TCP, "10.0.0.1", "4420"),
            entry(TransportType::RDMA, "10.0.0.1", "4420"),
            entry(TransportType::RDMA, "10.0.0.1", "4420"),
            entry(TransportType::FIBRE_CHANNEL, "nn-0x1:pn-0x2", "none"),
            entry(TransportType::TCP, "", "4421"),
            entry(TransportType::TCP, "10.0.0.2", "nvme"),
            DiscoveryEntry {
                subsystem_type: SubsystemType::CURRENT_DISCOVERY,
                ..entry(TransportType::TCP, "10.0.0.3", "8009")
            },
        ];
        let asked = "rdma:10.0.0.9:8009".parse().expect("an address");
        let all = found(&DiscoveryLog { generation: 1, entries }, asked);
        let addresses: Vec<String> = all[0].addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.0.0.1:4420", "rdma:10.0.0.1:4420", "10.0.0.9:4421"]);
        assert_eq!(all.len(), 1);
    }
}
