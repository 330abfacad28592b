//! The programs at the host's rpcbind: a host has one lock manager and one status monitor, and the
//! server takes the place of none.

use super::host::{Host, Services, bytes, config_of};
use crate::peer::PATIENCE;
use nlm::{Status, nsm};
use rpc::portmap;
use server::Server;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use xdr::{Reader, Writer};

/// Programs with their version and transport, and the port of each.
type Table = Arc<Mutex<BTreeMap<(u32, u32, u32), u32>>>;

/// An rpcbind of version 2 as it is specified: it refuses a second server for a program, and
/// removes all transports of a program at once. RFC 1833 s3.2
struct HostRpcbind {
    port: u16,
    table: Table,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl HostRpcbind {
    fn start() -> Self {
        // The port is taken, so the server registers.
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let (table, over) = (Table::default(), Arc::new(AtomicBool::new(false)));
        let (of_thread, is_over) = (Arc::clone(&table), Arc::clone(&over));
        let serve = move || {
            let _listener = listener;
            while !is_over.load(Ordering::SeqCst) {
                let mut bytes = [0; 1000];
                let Ok((len, from)) = socket.recv_from(&mut bytes) else { continue };
                let reply = answer(&bytes[..len], &of_thread);
                socket.send_to(&reply, from).unwrap();
            }
        };
        Self { port, table, over, thread: Some(std::thread::spawn(serve)) }
    }

    fn set(&self, program: u32, version: u32, protocol: u32, port: u32) -> bool {
        let mut table = self.table.lock().unwrap();
        table.insert((program, version, protocol), port).is_none()
    }

    fn programs(&self) -> Vec<u32> {
        let mut programs: Vec<_> = self.table.lock().unwrap().keys().map(|(program, ..)| *program).collect();
        programs.dedup();
        programs
    }
}

impl Drop for HostRpcbind {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

fn answer(call: &[u8], table: &Table) -> Vec<u8> {
    let mut reader = Reader::new(call);
    let header = rpc::call::decode(&mut reader).unwrap();
    assert_eq!((header.program, header.version), (portmap::PROGRAM, 2));
    let mut word = || reader.u32().unwrap();
    let (program, version, protocol, port) = (word(), word(), word(), word());
    let mut table = table.lock().unwrap();
    let key = (program, version, protocol);
    let result = match header.procedure {
        portmap::SET => match table.get(&key) {
            // A retransmission.
            Some(known) => u32::from(*known == port),
            None => u32::from(table.insert(key, port).is_none()),
        },
        portmap::UNSET => {
            table.retain(|known, _| (known.0, known.1) != (program, version));
            1
        }
        portmap::GET => table.get(&key).copied().unwrap_or(0),
        other => panic!("procedure {other}"),
    };
    let mut reply = Vec::new();
    let writer = &mut Writer::new(&mut reply);
    rpc::reply::encode_success(writer, header.xid);
    writer.u32(result);
    reply
}

const TCP: u32 = 6;
const UDP: u32 = 17;
const FILES: [u32; 2] = [nfs3::PROGRAM, nfs3::mount::PROGRAM];

fn start(rpcbind: &HostRpcbind, services: &Services) -> (Server, SocketAddr) {
    let mut config = config_of(services);
    config.rpcbind = Some(rpcbind.port);
    let server = Server::start(config).unwrap();
    let address = server.addresses()[0];
    (server, address)
}

#[test]
fn lock_manager_and_status_monitor_are_registered_and_removed_at_the_end() {
    let (rpcbind, services) = (HostRpcbind::start(), Services::start(false));
    let (server, address) = start(&rpcbind, &services);
    assert!(server.serves_nlm());
    let port = u32::from(address.port());
    let table = rpcbind.table.lock().unwrap().clone();
    for protocol in [TCP, UDP] {
        assert_eq!(table.get(&(nlm::PROGRAM, 4, protocol)), Some(&port));
        assert_eq!(table.get(&(nsm::PROGRAM, 1, protocol)), Some(&port));
    }
    // Who comes later finds it taken, and this server's place is kept.
    assert_eq!(table.get(&(nlm::PROGRAM, 3, TCP)), None, "versions that are not served");
    drop(server);
    assert_eq!(rpcbind.programs(), [0; 0]);
}

#[test]
fn beside_the_lock_manager_or_status_monitor_of_another_the_server_does_without() {
    for (program, version, protocol) in
        [(nlm::PROGRAM, 4, UDP), (nsm::PROGRAM, 1, TCP), (nsm::PROGRAM, 1, UDP)]
    {
        let (rpcbind, services) = (HostRpcbind::start(), Services::start(false));
        assert!(rpcbind.set(program, version, protocol, 777));
        let (server, address) = start(&rpcbind, &services);
        assert!(!server.serves_nlm());
        let mut registered = rpcbind.programs();
        registered.retain(|other| *other != program);
        assert_eq!(registered, FILES, "files are served, and only half of a lock manager is none");
        let mut host = Host::new(address, "host");
        let file = host.file("file");
        let args = host.lock_args(&file, 1, bytes(0, 1), false, false);
        let (body, _) = host.peer.call_any(nlm::PROGRAM, 4, 2, &args);
        assert_eq!(body, rpc::reply::Body::Accepted(rpc::reply::Accept::ProgUnavail));
        drop(server);
        let left = rpcbind.table.lock().unwrap().clone();
        assert_eq!(left, BTreeMap::from([((program, version, protocol), 777)]), "the other's stays");
    }
}

#[test]
fn a_lock_manager_that_comes_later_is_refused_by_rpcbind_and_the_servers_stays() {
    let (rpcbind, services) = (HostRpcbind::start(), Services::start(false));
    let (server, address) = start(&rpcbind, &services);
    let set = |port: u32| {
        let mut call = Vec::new();
        let writer = &mut Writer::new(&mut call);
        rpc::call::encode(writer, rpc::Xid(1), portmap::PROGRAM, 2, portmap::SET, &[0; 8]);
        [nlm::PROGRAM, 4, UDP, port].iter().for_each(|word| writer.u32(*word));
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.send_to(&call, (Ipv4Addr::LOCALHOST, rpcbind.port)).unwrap();
        let mut reply = [0; 100];
        let len = socket.recv(&mut reply).unwrap();
        reply[len - 1]
    };
    assert_eq!(set(777), 0);
    assert!(server.serves_nlm());
    let mut host = Host::new(address, "host");
    let file = host.file("file");
    assert_eq!(host.lock(&file, 1, bytes(0, 1)), Status::GRANTED);
}
