//! Seeded random numbers for tests.

/// A random generator (SplitMix64). The same seed gives the same numbers on every machine and in every version, so that
/// a failure is reproducible; the field is the complete state, for messages about failures.
#[derive(Clone, Debug)]
pub struct Dice(pub u64);

impl Dice {
    /// Any number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to `limit` - 1; 0 for a limit of 0.
    pub fn below<N>(&mut self, limit: N) -> N
    where
        N: TryFrom<u64, Error: std::fmt::Debug> + TryInto<u64, Error: std::fmt::Debug>,
    {
        let limit: u64 = limit.try_into().unwrap();
        N::try_from(self.roll() % limit.max(1)).unwrap()
    }

    /// True with this probability in percent.
    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generates_published_numbers_below_limit() {
        let mut dice = Dice(1_234_567);
        assert_eq!([dice.roll(), dice.roll()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
        assert!((0..1000).all(|_| dice.below(7_usize) < 7));
        assert_eq!(dice.below(0_u32), 0);
        let hits = (0..10_000).filter(|_| dice.percent(30)).count();
        assert!((2_700..3_300).contains(&hits), "{hits}");
    }
}
