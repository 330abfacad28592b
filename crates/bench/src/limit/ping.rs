//! A plain ping-pong: one small block at a time on a separate connection, while other work runs.

use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use record::Latency;

use super::threads::{receive, send};
use super::{ANSWER_BYTES, CALL_BYTES, Error, Role, connect, next_block};

/// The result of a ping-pong.
#[derive(Debug)]
pub struct PingResult {
    /// Replies per second.
    pub per_s: f64,
    /// The time from call to reply.
    pub latency: Latency,
}

/// Moves blocks from one thread to another, one at a time, while `meanwhile` runs. Those sent in
/// the first part, up to `skip`, do not count.
///
/// # Errors
/// [`Error`].
pub fn ping_during<T>(
    address: IpAddr,
    congestion: &str,
    block_bytes: usize,
    skip: Duration,
    meanwhile: impl FnOnce() -> T,
) -> Result<(PingResult, T), Error> {
    let (client_stream, server_stream) =
        connect(address, congestion).map_err(|source| Error::Address { address, source })?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let server = scope.spawn(|| run_server(server_stream, block_bytes));
        let client = scope.spawn(|| run_client(client_stream, block_bytes, skip, &stop));
        let done = meanwhile();
        stop.store(true, Ordering::Relaxed);
        let result = join(client, Role::Client);
        join(server, Role::Server)?;
        Ok((result?, done))
    })
}

fn join<T>(thread: ScopedJoinHandle<'_, std::io::Result<T>>, role: Role) -> Result<T, Error> {
    let outcome = thread.join().unwrap_or_else(|_| Err(std::io::Error::other("ended by a bug")));
    outcome.map_err(|source| role.failed(0, source))
}

/// Answers until the other end closes the connection.
fn run_server(mut stream: TcpStream, block_bytes: usize) -> std::io::Result<()> {
    let (mut call, mut seed) = ([0; CALL_BYTES], 0);
    loop {
        match receive(&stream, &mut call) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            received => received?,
        }
        send(&mut stream, &[0; ANSWER_BYTES], next_block(&mut seed, block_bytes))?;
    }
}

fn run_client(
    mut stream: TcpStream,
    block_bytes: usize,
    skip: Duration,
    stop: &AtomicBool,
) -> std::io::Result<PingResult> {
    let (mut latency, mut count) = (Latency::new(), 0_u64);
    let mut answer = vec![0; ANSWER_BYTES + block_bytes];
    let began = Instant::now();
    // At least one reply counts, even if the other work ends at once.
    while !stop.load(Ordering::Relaxed) || count == 0 {
        let sent_at = Instant::now();
        send(&mut stream, &[0; CALL_BYTES], &[])?;
        receive(&stream, &mut answer)?;
        if sent_at.duration_since(began) >= skip {
            latency.record_ns(u64::try_from(sent_at.elapsed().as_nanos()).unwrap_or(u64::MAX));
            count += 1;
        }
    }
    let counted = began.elapsed().saturating_sub(skip).as_secs_f64();
    stream.shutdown(Shutdown::Both)?;
    Ok(PingResult { per_s: count as f64 / counted.max(1e-9), latency })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn ping_during_work<T>(
        address: Ipv4Addr,
        meanwhile: impl FnOnce() -> T,
    ) -> Result<(PingResult, T), Error> {
        let congestion = transport::socket::congestion_controls().remove(0);
        ping_during(address.into(), &congestion, 4096, Duration::from_millis(1), meanwhile)
    }

    #[test]
    fn blocks_go_to_and_fro_and_what_went_on_meanwhile_is_kept() {
        let (result, outcome) = ping_during_work(Ipv4Addr::LOCALHOST, || 7).unwrap();
        assert_eq!(outcome, 7);
        assert!(result.per_s > 0.0 && result.latency.percentile_us(0.5) > 0.0);
    }

    #[test]
    fn at_an_address_that_is_not_ours_nothing_runs() {
        let outcome = ping_during_work(Ipv4Addr::new(203, 0, 113, 1), || panic!("it runs"));
        assert!(matches!(outcome, Err(Error::Address { .. })));
    }
}
