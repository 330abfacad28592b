//! The address of a connection: its loop and its key there, and the token made of them.

use drc::Token;

/// The loop of a connection, and its key there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConnectionAddress {
    pub on_loop: usize,
    pub key: usize,
}

/// Encodes a connection as a number, from which [`address_of`] finds it again.
pub(crate) fn token_of(address: ConnectionAddress, connection: u64) -> Token {
    Token((address.on_loop as u64) << 56 | (address.key as u64 & 0xff_ffff) << 32 | connection & 0xffff_ffff)
}

/// The address of a connection, and the low half of its number.
pub(crate) fn address_of(token: Token) -> (ConnectionAddress, u32) {
    let [on_loop, k1, k2, k3, number @ ..] = token.0.to_be_bytes();
    let key = usize::try_from(u32::from_be_bytes([0, k1, k2, k3])).unwrap_or(usize::MAX);
    (ConnectionAddress { on_loop: usize::from(on_loop), key }, u32::from_be_bytes(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_leads_back_to_its_connection() {
        let address = ConnectionAddress { on_loop: 255, key: 0xab_cdef };
        assert_eq!(address_of(token_of(address, 0x1_2345_6789)), (address, 0x2345_6789));
    }
}
