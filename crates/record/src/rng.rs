//! SplitMix64, the small random number generator of the bootstrap.
//!
//! The generator has a fixed seed, so that the same record gives the same intervals on every
//! machine. It is not suitable for secrets.

/// A SplitMix64 generator (Steele, Lea, Flood: "Fast splittable pseudorandom number generators",
/// 2014).
#[derive(Clone, Debug)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// A generator that gives the same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `bound`, uniformly distributed to within one in 2^64 / `bound`; 0 for a bound
    /// of 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let wide = u128::from(self.draw()) * (bound as u128);
        // The product is below bound x 2^64, so its upper half is below the bound and fits.
        (wide >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_numbers_are_those_of_the_published_generator() {
        let mut rng = SplitMix64::new(1_234_567);
        assert_eq!(rng.draw(), 6_457_827_717_110_365_317);
        assert_eq!(rng.draw(), 3_203_168_211_198_807_973);
        assert_eq!(rng.draw(), 9_817_491_932_198_370_423);
    }

    #[test]
    fn draws_stay_below_the_bound_and_reach_every_value() {
        let mut rng = SplitMix64::new(1);
        let mut seen = [false; 8];
        for _ in 0..1000 {
            seen[rng.below(8)] = true;
        }
        assert_eq!(seen, [true; 8]);
        assert_eq!(rng.below(0), 0);
    }
}
