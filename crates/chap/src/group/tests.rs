//! The groups, against their definition and against numbers of another implementation.

use super::*;
use crate::hash::Hash;

const REAL: [Group; 5] =
    [Group::Ffdhe2048, Group::Ffdhe3072, Group::Ffdhe4096, Group::Ffdhe6144, Group::Ffdhe8192];

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha256(bytes: &[u8]) -> String {
    hex(&Hash::Sha256.digest(bytes))
}

fn exchange(group: Group, first: u8) -> Exchange {
    Exchange::new(group, &std::array::from_fn(|at| first + at as u8)).expect("a group")
}

/// A number of 32-bit words, the most significant first, whose point is after the first word.
struct Fixed(Vec<u32>);

impl Fixed {
    fn divide(&mut self, divisor: u32) {
        self.0.iter_mut().fold(0_u64, |rest, word| {
            let dividend = rest << 32 | u64::from(*word);
            *word = (dividend / u64::from(divisor)) as u32;
            dividend % u64::from(divisor)
        });
    }

    fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).rev().fold(0_u64, |carry, (word, other)| {
            let sum = u64::from(*word) + u64::from(*other) + carry;
            *word = sum as u32;
            sum >> 32
        });
    }

    fn is_zero(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// e as the sum of 1/k!.
    fn e(words: usize) -> Self {
        let mut term = Self(std::iter::once(1).chain(std::iter::repeat_n(0, words - 1)).collect());
        let mut sum = Self(term.0.clone());
        for k in 1.. {
            term.divide(k);
            if term.is_zero() {
                break;
            }
            sum.add(&term);
        }
        sum
    }

    /// The first bits, from that of the weight 2, as a number.
    fn first(&self, bits: u32) -> BoxedUint {
        let bytes = self.0.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>();
        let all = BoxedUint::from_be_slice(&bytes, self.0.len() as u32 * 32).expect("as long");
        // Thirty zeros stand before the bit of the weight 2.
        &all >> (self.0.len() as u32 * 32 - 30 - bits)
    }
}

// RFC 7919 sA.1, RFC 7919 sA.2, RFC 7919 sA.3, RFC 7919 sA.4, RFC 7919 sA.5
#[test]
fn the_primes_follow_from_e() {
    let e = Fixed::e(8192 / 32 + 4);
    for (group, added) in REAL.into_iter().zip([560_316_u64, 2_625_351, 5_736_041, 15_705_020, 10_965_728]) {
        let bits = group.bits();
        // 2^b - 2^(b-64) + ([2^(b-130) e] + X) 2^64 - 1, where e has two bits before its point.
        let middle = e.first(bits - 128).resize(bits).wrapping_add(BoxedUint::from(added).resize(bits));
        let ones = BoxedUint::from(u64::MAX).resize(bits);
        let one = BoxedUint::one_with_precision(bits);
        let prime = (&ones << (bits - 64)).wrapping_add(&middle << 64).wrapping_sub(&one);
        let known = BoxedUint::from_be_hex(group.prime_hex().expect("a prime"), bits);
        assert_eq!(prime, known.expect("hexadecimal digits"), "{}", group.name());
    }
}

#[test]
fn values_and_secrets_are_those_of_another_implementation() {
    let expected = [
        (
            "18bc2cccdc9b372869a1c94576049549d731ba271505ce4cedf991a78597fe1b",
            "7e8671397b38934646dc3cd6926d68f4e9d34033191ecb99bb44d02ea3fdc0e5",
        ),
        (
            "01f764e8e23e793f993d680cf9869de2410a131a04c9cc5c9f9e5e8c9932efc9",
            "e07a5bb90d10f9e7decd0619d9363554b778284a366f16a464216bea6aadcdaf",
        ),
        (
            "9cc3c8e4c540f739f09e5180e404c57f026b94fd7adb23852283d87c252401f6",
            "b7e03c4970813a156fd369605e849a195847ab2c2a475eefc8f9e0d022686c43",
        ),
        (
            "1e569cd6ef0b973989949497431d60c377923773899e8a01a453c76d89c9d659",
            "59c84d2a8d5264dc46453af0b6c45fb204d6fb38e30689051d128c396188f536",
        ),
        (
            "eb1cc18344671344f1f6e74d1688a292128211f26429e75d83a93eef9f4109db",
            "32ee4e668fec512ca2e789e3b8eb386cdeb2e7eb55e480950ec4e5f99cdaf512",
        ),
    ];
    for (group, (value, secret)) in REAL.into_iter().zip(expected) {
        let (one, other) = (exchange(group, 0), exchange(group, 100));
        assert_eq!(one.value().len(), group.bytes());
        assert_eq!(sha256(&one.value()), value, "{}", group.name());
        let shared = one.shared(&other.value()).expect("a value of the group");
        assert_eq!(sha256(&shared), secret, "{}", group.name());
        assert_eq!(other.shared(&one.value()).expect("a value of the group"), shared);
    }
}

#[test]
fn values_and_secrets_keep_their_leading_zeros() {
    let one = exchange(Group::Ffdhe2048, 0);
    let other = Exchange::new(Group::Ffdhe2048, &[107; EXPONENT_BYTES_MAX]).expect("a group");
    let shared = one.shared(&other.value()).expect("a value of the group");
    assert_eq!((shared.len(), shared[0]), (256, 0));
    assert_eq!(sha256(&shared), "5a73d70327b524e7444aef98ac4495c713b34537e18ad1108da7b4a345084f1d");
    let small = Exchange::new(Group::Ffdhe2048, &[195; EXPONENT_BYTES_MAX]).expect("a group").value();
    assert_eq!((small.len(), small[0]), (256, 0));
    assert_eq!(sha256(&small), "24c7c8dac14492c9993d5b68e2b20e5f46ad00179f52dd8fec5dcfcb7799b2d9");
}

// RFC 7919 s3
#[test]
fn a_value_that_gives_the_secret_away_is_refused() {
    let group = Group::Ffdhe2048;
    let one = exchange(group, 0);
    let number = |last: u8| [[0; 255].as_slice(), &[last]].concat();
    let prime = BoxedUint::from_be_hex(group.prime_hex().expect("a prime"), group.bits());
    let prime = prime.expect("hexadecimal digits").to_be_bytes().into_vec();
    let less = |by: u8| {
        let mut less = prime.clone();
        less[255] -= by;
        less
    };
    for bad in [number(0), number(1), less(1), prime.clone(), vec![0xff; 256], vec![2; 255], vec![0; 257]] {
        assert_eq!(one.shared(&bad), Err(BadValue), "{} bytes, {}", bad.len(), hex(&bad[250..]));
    }
    assert!(one.shared(&[]).is_err());
    assert!(one.shared(&number(2)).is_ok());
    assert!(one.shared(&less(2)).is_ok());
}

#[test]
fn identifiers_and_names() {
    assert_eq!(Group::ALL.map(Group::id), [5, 4, 3, 2, 1, 0]);
    for group in Group::ALL {
        assert_eq!((Group::of(group.id()), Group::named(group.name())), (Some(group), Some(group)));
    }
    assert_eq!((Group::of(6), Group::named("modp2048")), (None, None));
    assert!(Exchange::new(Group::Null, &[1; EXPONENT_BYTES_MAX]).is_none());
}

#[test]
fn debug_does_not_show_the_exponent() {
    assert_eq!(format!("{:?}", exchange(Group::Ffdhe2048, 0)), "Exchange(ffdhe2048)");
}
