//! Segments and full stripes: whether a host's largest request fills a stripe, so that the
//! controllers can skip the mirrored cache (full-stripe write acceleration).
//!
//! After "Deploying NetApp EF600" (Lenovo Press, 2021), section Configuring Volumes on RAID Volume
//! Groups.

use crate::Scheme;
use crate::ef600::{cite, ef600};
use crate::error::{Result, refuse};
use serde::Serialize;

/// The segment sizes that the array offers, in KiB.
const SEGMENTS_KIB: [u32; 5] = [32, 64, 128, 256, 512];
/// A generous limit: the largest `max_sectors_kb` that a kernel accepts is far below.
const REQUEST_KIB_MAX: u32 = 1 << 20;

/// A stripe and its effect on writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stripe {
    /// The size of a segment in KiB; `None` for a pool, which sets it itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segment_kib: Option<u32>,
    /// The data of a stripe in KiB; `None` for a pool, which sets it itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stripe_kib: Option<u32>,
    /// The largest request of the hosts, in KiB.
    pub request_kib: u32,
    /// Whether full stripes are accelerated.
    #[serde(rename = "full_stripe_acceleration")]
    pub is_accelerated: bool,
    /// The reason why they are or are not.
    pub why: String,
    /// What to change, if there is a problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// The stripe of a scheme for the hosts' largest request.
///
/// # Errors
/// A segment size that the array does not offer, or a request that no host sends.
pub fn stripe(scheme: Scheme, request_kib: Option<u32>, segment_kib: Option<u32>) -> Result<Stripe> {
    let request = request_kib.unwrap_or(ef600().request_kib_default);
    if !(4..=REQUEST_KIB_MAX).contains(&request) {
        return refuse(
            format!("cannot plan for requests of {request} KiB"),
            format!("a host's largest request is 4 to {REQUEST_KIB_MAX} KiB"),
            "cat /sys/block/DEVICE/queue/max_sectors_kb",
            format!("--request-kib {}", ef600().request_kib_default),
        );
    }
    if scheme != Scheme::Raid6 {
        return without(scheme, request, segment_kib);
    }
    let data = ef600().raid6.data;
    let most = ef600().segment_kib_max_full_stripe;
    let fitting =
        SEGMENTS_KIB.into_iter().rev().find(|segment| *segment <= most && segment * data <= request);
    let best = fitting.unwrap_or(SEGMENTS_KIB[0]);
    let segment = segment_kib.unwrap_or(best);
    if !SEGMENTS_KIB.contains(&segment) {
        let below = SEGMENTS_KIB.into_iter().rev().find(|one| *one <= segment).unwrap_or(SEGMENTS_KIB[0]);
        return refuse(
            format!("cannot use segments of {segment} KiB"),
            "a segment is 32, 64, 128, 256 or 512 KiB",
            cite("section Configuring Volumes on RAID Volume Groups"),
            format!("--segment-kib {below}"),
        );
    }
    let width = segment * data;
    let (is_accelerated, why) = if segment > most {
        (
            false,
            format!("full stripes are not accelerated: {data} x {segment} KiB = {width} KiB, above 2048 KiB"),
        )
    } else if request < width {
        (
            false,
            format!(
                "full stripes are not accelerated: hosts send at most {request} KiB, less than a stripe of {data} x \
                 {segment} KiB = {width} KiB"
            ),
        )
    } else {
        (
            true,
            format!(
                "full stripes are accelerated (FSWA): {data} x {segment} KiB = {width} KiB, which hosts send in one \
                 request of {request} KiB"
            ),
        )
    };
    Ok(Stripe {
        segment_kib: Some(segment),
        stripe_kib: Some(width),
        request_kib: request,
        is_accelerated,
        why,
        warning: warning(request, segment, width, best, fitting.is_some()),
    })
}

/// The stripe of a scheme without acceleration.
fn without(scheme: Scheme, request: u32, segment_kib: Option<u32>) -> Result<Stripe> {
    if let (Scheme::Ddp, Some(segment)) = (scheme, segment_kib) {
        return refuse(
            format!("cannot set segments of {segment} KiB in a pool"),
            "a pool sets its own segments",
            cite("figure 11"),
            "leave --segment-kib out, or --scheme raid6",
        );
    }
    let why = match scheme {
        Scheme::Ddp => {
            "full stripes are not accelerated: a pool cannot, and writes through the mirrored cache (CME)"
                .to_owned()
        }
        _ => format!(
            "full stripes are not accelerated: only RAID 6 of 8+2 is known to be, not {}",
            scheme.title()
        ),
    };
    Ok(Stripe {
        segment_kib: None,
        stripe_kib: None,
        request_kib: request,
        is_accelerated: false,
        why,
        warning: None,
    })
}

fn warning(request: u32, segment: u32, width: u32, best: u32, can_fit: bool) -> Option<String> {
    if !can_fit {
        return Some(format!(
            "no segment is small enough for requests of {request} KiB: raise max_sectors_kb to 1024 on the hosts and their \
             multipath devices"
        ));
    }
    if segment != best {
        return Some(format!(
            "segments of {best} KiB suit requests of {request} KiB best (--segment-kib {best})"
        ));
    }
    (!request.is_multiple_of(width)).then(|| {
        format!("requests of {request} KiB end within a stripe of {width} KiB: set max_sectors_kb to a multiple of it")
    })
}
