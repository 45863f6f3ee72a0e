//! PCG32 and its named substreams (`tinyllm.num.rng`).

const MULTIPLIER: u64 = 6364136223846793005;
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// What a substream is for; the number is part of its seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Init = 1,
    Dropout = 2,
    Shuffle = 3,
    Sample = 4,
    Mutation = 5,
}

/// A stream of 32-bit draws, fixed by its seed and the stream number.
#[derive(Clone, Debug)]
pub struct Pcg32 {
    seed: u64,
    state: u64,
    inc: u64,
}

impl Pcg32 {
    /// The stream `seq` of `seed`; the package's default stream is 54.
    pub fn new(seed: u64, seq: u64) -> Self {
        let mut rng = Pcg32 { seed, state: 0, inc: seq << 1 | 1 };
        rng.next_u32();
        rng.state = rng.state.wrapping_add(seed);
        rng.next_u32();
        rng
    }

    /// The generator of one request.
    pub fn for_request(seed: u64) -> Self {
        Pcg32::new(seed, 54).substream(Purpose::Sample)
    }

    /// A generator of its own for one purpose: of the seed alone, whatever was drawn.
    pub fn substream(&self, purpose: Purpose) -> Self {
        let number = purpose as u64;
        let child = mix64(self.seed.wrapping_add(number.wrapping_mul(GOLDEN)));
        Pcg32::new(child, number)
    }

    /// The next draw: a hash of the state before the step.
    pub fn next_u32(&mut self) -> u32 {
        let old = self.state;
        self.state = old.wrapping_mul(MULTIPLIER).wrapping_add(self.inc);
        let xorshifted = (((old >> 18) ^ old) >> 27) as u32;
        xorshifted.rotate_right((old >> 59) as u32)
    }

    /// The next uniform in [0, 1), a multiple of 2^-53, from two draws.
    pub fn uniform(&mut self) -> f64 {
        let high = u64::from(self.next_u32() >> 5);
        let low = u64::from(self.next_u32() >> 6);
        ((high << 26) + low) as f64 / (1u64 << 53) as f64
    }

    /// The next integer in [0, n), without bias. Panics unless 1 <= n <= 2^32.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!((1..=1 << 32).contains(&n), "below({n}): n must be from 1 to 2^32");
        let threshold = ((1u64 << 32) - n) % n;
        loop {
            let draw = u64::from(self.next_u32());
            if draw >= threshold {
                return draw % n;
            }
        }
    }

    /// Puts `xs` in random order, from the last place down.
    pub fn shuffle<T>(&mut self, xs: &mut [T]) {
        for i in (1..xs.len()).rev() {
            let j = self.below(i as u64 + 1) as usize;
            xs.swap(i, j);
        }
    }

    /// `(state, inc)`: everything the next draw depends on.
    pub fn state(&self) -> (u64, u64) {
        (self.state, self.inc)
    }
}

/// SplitMix64's finaliser: near inputs give unrelated outputs.
fn mix64(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
