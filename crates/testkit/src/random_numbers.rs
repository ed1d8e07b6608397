//! Random numbers and lines that are the same in each test run.

/// A generator of random numbers (xorshift), which begins with the given seed. The seed must not be 0.
#[derive(Debug)]
pub struct RandomNumbers(pub u64);

impl RandomNumbers {
    /// The next number.
    #[expect(clippy::should_implement_trait, reason = "the numbers never end, so callers want no Option")]
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A line of up to about 200 bytes, which mixes the fragments with random bytes and ends with its only newline.
    pub fn line(&mut self, fragments: &[&str]) -> Vec<u8> {
        let length = self.next() % 200;
        let mut line = Vec::new();
        while (line.len() as u64) < length {
            if self.next().is_multiple_of(4) {
                line.extend(fragments[(self.next() % fragments.len() as u64) as usize].bytes());
            } else {
                line.push(self.next() as u8);
            }
        }
        line.retain(|byte| *byte != b'\n');
        line.push(b'\n');
        line
    }
}
