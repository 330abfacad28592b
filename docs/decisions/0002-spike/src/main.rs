//! Spike for decision 0002: which loop carries the shape of NFS over loopback TCP best?
//!
//! Every case is run by one process: server loops, client threads (batched, blocking in epoll), one
//! try after the other in the order A B B A..., and the medians are printed as a Markdown table. A
//! try during which other processes took over 6 % of the machine is thrown away and repeated.
//!
//!   cargo run --release -- [SECONDS] [TRIES] [FILTER]

mod client;
mod epoll;
mod memory;
mod uring;

use rustix::net::sockopt;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub const CALL_BYTES: usize = 100;
pub const HEADER_BYTES: usize = 128;

/// How the server is built.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loop {
    /// epoll, level-triggered; replies gathered from memory by one sendmsg per batch.
    Epoll,
    /// As `Epoll`, but the payload is copied into the send buffer first.
    EpollCopy,
    /// epoll, edge-triggered, both interests always registered.
    EpollEdge,
    /// io_uring, one receive and one sendmsg per connection in flight, DEFER_TASKRUN.
    Uring,
    /// io_uring with a multishot receive into provided buffers.
    UringMulti,
}

/// One cell of the table.
#[derive(Clone, Copy)]
pub struct Case {
    pub block: usize,
    pub depth: usize,
    pub connections: usize,
    pub server: Loop,
    pub loops: usize,
    pub clients: usize,
    pub congestion: &'static str,
    pub socket_bytes: usize,          // 0: the system's own tuning
    pub cpus: Option<(usize, usize)>, // the server's and the client's; None: wherever the scheduler likes
}

pub static STOP: AtomicBool = AtomicBool::new(false);
pub static BLOCKS: AtomicU64 = AtomicU64::new(0);

fn pairs(case: &Case) -> Vec<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    sockopt::set_tcp_congestion(&listener, case.congestion).unwrap();
    let tune = |s: &TcpStream| {
        s.set_nodelay(true).unwrap();
        s.set_nonblocking(true).unwrap();
        sockopt::set_tcp_congestion(s, case.congestion).unwrap();
        if case.socket_bytes > 0 {
            sockopt::set_socket_send_buffer_size(s, case.socket_bytes).unwrap();
            sockopt::set_socket_recv_buffer_size(s, case.socket_bytes).unwrap();
        }
    };
    (0..case.connections)
        .map(|_| {
            let ask = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let serve = listener.accept().unwrap().0;
            tune(&ask);
            tune(&serve);
            (ask, serve)
        })
        .collect()
}

/// Deals `items` out to `n` hands.
fn deal<T>(items: Vec<T>, n: usize) -> Vec<Vec<T>> {
    let mut hands: Vec<Vec<T>> = (0..n).map(|_| Vec::new()).collect();
    for (i, item) in items.into_iter().enumerate() {
        hands[i % n].push(item);
    }
    hands
}

/// CPU time: (all of the machine's busy ticks, this process's own) in seconds.
fn cpu() -> (f64, f64) {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let t: Vec<f64> =
        stat.lines().next().unwrap().split_whitespace().skip(1).map(|v| v.parse().unwrap()).collect();
    let own = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    ((t[0] + t[1] + t[2] + t[5] + t[6] + t[7]) / 100.0, own.tv_sec as f64 + own.tv_nsec as f64 * 1e-9)
}

fn pin(cpu: Option<usize>) {
    if let Some(cpu) = cpu {
        let mut set = rustix::thread::CpuSet::new();
        set.set(cpu);
        rustix::thread::sched_setaffinity(None, &set).unwrap();
    }
}

struct Outcome {
    per_second: f64,
    server_cpu_us: f64,
    foreign: f64,
}

fn run(case: &Case, length: Duration) -> Outcome {
    STOP.store(false, Ordering::SeqCst);
    let pairs = pairs(case);
    let fds: Vec<i32> = pairs.iter().flat_map(|(a, b)| [a.as_raw_fd(), b.as_raw_fd()]).collect();
    let (asking, serving): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let server_ns = AtomicU64::new(0);
    let mut outcome = Outcome { per_second: 0.0, server_cpu_us: 0.0, foreign: 0.0 };
    std::thread::scope(|scope| {
        for hand in deal(serving, case.loops) {
            let server_ns = &server_ns;
            scope.spawn(move || {
                pin(case.cpus.map(|c| c.0));
                match case.server {
                    Loop::Uring | Loop::UringMulti => uring::serve(hand, case),
                    _ => epoll::serve(hand, case),
                }
                let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
                server_ns.fetch_add(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64, Ordering::SeqCst);
            });
        }
        for hand in deal(asking, case.clients) {
            scope.spawn(move || {
                pin(case.cpus.map(|c| c.1));
                client::ask(hand, case)
            });
        }
        std::thread::sleep(Duration::from_millis(200));
        let (busy, own) = cpu();
        let (before, start) = (BLOCKS.load(Ordering::Relaxed), Instant::now());
        std::thread::sleep(length);
        let (took, blocks) = (start.elapsed().as_secs_f64(), BLOCKS.load(Ordering::Relaxed) - before);
        let (busy_after, own_after) = cpu();
        outcome.per_second = blocks as f64 / took;
        outcome.foreign = ((busy_after - busy) - (own_after - own)) / (2.0 * took);
        STOP.store(true, Ordering::SeqCst);
        for fd in fds {
            unsafe { libc::shutdown(fd, libc::SHUT_RDWR) };
        }
    });
    // Over the whole life of the server threads, so the warm-up's blocks are counted in.
    let all = BLOCKS.swap(0, Ordering::SeqCst);
    outcome.server_cpu_us = server_ns.load(Ordering::SeqCst) as f64 / 1e3 / all.max(1) as f64;
    outcome
}

fn quiet_run(case: &Case, length: Duration) -> Outcome {
    let mut best: Option<Outcome> = None;
    for _ in 0..40 {
        let outcome = run(case, length);
        if outcome.foreign < 0.06 {
            return outcome;
        }
        if best.as_ref().is_none_or(|b| outcome.foreign < b.foreign) {
            best = Some(outcome);
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    best.unwrap()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Runs the cases of one comparison forwards, backwards, forwards... and prints a row for each.
fn compare(title: &str, cases: &[(String, Case)], length: Duration, tries: usize) {
    let mut outcomes: Vec<Vec<Outcome>> = cases.iter().map(|_| Vec::new()).collect();
    for n in 0..tries {
        let order: Vec<usize> =
            if n % 2 == 0 { (0..cases.len()).collect() } else { (0..cases.len()).rev().collect() };
        for i in order {
            outcomes[i].push(quiet_run(&cases[i].1, length));
        }
    }
    println!("\n{title}\n");
    println!("| case | per second | GB/s | least to most GB/s | server CPU us per READ | others' CPU |");
    println!("|---|---|---|---|---|---|");
    for ((name, case), tries) in cases.iter().zip(outcomes) {
        let gb = case.block as f64 / 1e9;
        let rates: Vec<f64> = tries.iter().map(|t| t.per_second).collect();
        let (least, most) = rates.iter().fold((f64::MAX, 0f64), |(l, m), r| (l.min(*r), m.max(*r)));
        println!(
            "| {name} | {:.0} | {:.2} | {:.2} to {:.2} | {:.2} | {:.0} % |",
            median(rates.clone()),
            median(rates) * gb,
            least * gb,
            most * gb,
            median(tries.iter().map(|t| t.server_cpu_us).collect()),
            100.0 * tries.iter().map(|t| t.foreign).fold(0.0, f64::max),
        );
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let length = Duration::from_secs_f64(args.first().map_or(0.8, |a| a.parse().unwrap()));
    let tries = args.get(1).map_or(5, |a| a.parse().unwrap());
    let filter = args.get(2).cloned().unwrap_or_default();
    memory::prefault();
    let base = |block: usize| Case {
        block,
        depth: if block > 4096 { 16 } else { 32 },
        connections: 1,
        server: Loop::Epoll,
        loops: 1,
        clients: 1,
        congestion: "reno",
        socket_bytes: 0,
        cpus: None,
    };
    let kinds = |block: usize| -> Vec<Loop> {
        let mut kinds = vec![Loop::Epoll, Loop::EpollEdge, Loop::Uring, Loop::UringMulti];
        if block == 4096 {
            kinds.push(Loop::EpollCopy);
        }
        kinds
    };
    for block in [1 << 20, 4096] {
        for (connections, loops, clients) in [(1, 1, 1), (2, 1, 1), (2, 2, 2), (4, 1, 1), (4, 2, 2)] {
            let cases: Vec<_> = kinds(block)
                .into_iter()
                .map(|server| {
                    (format!("{server:?}"), Case { server, connections, loops, clients, ..base(block) })
                })
                .collect();
            let title = format!(
                "loops: {block} bytes, {connections} connections, {loops} server loops, {clients} client threads"
            );
            if title.contains(&filter) {
                compare(&title, &cases, length, tries);
            }
        }
        let mut cases = Vec::new();
        for connections in [1, 4] {
            for congestion in ["reno", "bbr"] {
                for socket_bytes in [0, 4 << 20] {
                    let loops = connections.min(2);
                    let name = format!(
                        "{connections} connections, {congestion}, {}",
                        if socket_bytes == 0 { "own tuning" } else { "SO_SNDBUF = SO_RCVBUF = 4 MiB" }
                    );
                    cases.push((
                        name,
                        Case { connections, congestion, socket_bytes, loops, clients: loops, ..base(block) },
                    ));
                }
            }
        }
        let title = format!("sockets: {block} bytes, Epoll");
        if title.contains(&filter) {
            compare(&title, &cases, length, tries);
        }
        let mut cases = Vec::new();
        for (name, cpus) in
            [("free", None), ("one CPU each", Some((0, 1))), ("both on one CPU", Some((0, 0)))]
        {
            cases.push((name.to_string(), Case { cpus, ..base(block) }));
        }
        let title = format!("placement: {block} bytes, 1 connection, Epoll");
        if title.contains(&filter) {
            compare(&title, &cases, length, tries);
        }
    }
}
