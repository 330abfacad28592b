//! Options whose text has rules of its own.

use super::Draft;
use super::spec::Fault;

const NO_OTHER_SECURITY: &str = "only AUTH_SYS is built; use sec=sys";
/// Linux: TCP_CA_NAME_MAX, less its terminating zero.
const CONGESTION_BYTES_MAX: usize = 15;
/// The longest domain name. RFC 1035 s2.3.4
const DOMAIN_BYTES_MAX: usize = 255;

/// A list means "the first that both ends have".
pub(super) fn check_security(text: &str) -> Result<(), Fault> {
    let known = ["sys", "none", "krb5", "krb5i", "krb5p"];
    if let Some(flavor) = text.split(':').find(|flavor| !known.contains(flavor)) {
        return Err(Fault::Bad(format!("; \"{flavor}\" is no security flavor")));
    }
    match text.split(':').any(|flavor| flavor == "sys") {
        true => Ok(()),
        false => Err(Fault::Refused(NO_OTHER_SECURITY)),
    }
}

pub(super) fn set_congestion(draft: &mut Draft, text: &str) -> Result<(), Fault> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if text.len() > CONGESTION_BYTES_MAX || !text.chars().all(allowed) {
        return Err(Fault::Bad(String::new()));
    }
    draft.options.congestion = Some(text.to_owned());
    Ok(())
}

pub(super) fn set_owner_domain(draft: &mut Draft, text: &str) -> Result<(), Fault> {
    let allowed = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_');
    if text.is_empty() || text.len() > DOMAIN_BYTES_MAX || !text.chars().all(allowed) {
        return Err(Fault::Bad(String::new()));
    }
    draft.options.owner_domain = Some(text.to_owned());
    Ok(())
}
