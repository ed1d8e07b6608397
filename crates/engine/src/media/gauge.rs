//! What is found out about bytes on their way into the store: how many, of what type, which hash.

use parlor_vocab::{Media, MediaId};
use sha2::{Digest, Sha256};

use super::MediaError;
use super::sniff::Sniffer;

/// Looks at bytes that come piece by piece. How they are cut makes no difference.
pub(super) struct Gauge {
    limit: u64,
    size: u64,
    digest: Sha256,
    sniffer: Sniffer,
}

impl Gauge {
    /// Allows `limit` bytes.
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, size: 0, digest: Sha256::new(), sniffer: Sniffer::default() }
    }

    /// Fails if `more` bytes would be too many.
    pub(super) fn check(&self, more: usize) -> Result<(), MediaError> {
        let fits = self.size.saturating_add(more as u64) <= self.limit;
        if fits { Ok(()) } else { Err(MediaError::TooLarge { limit: self.limit }) }
    }

    /// Takes the next bytes, or says that there are too many.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(), MediaError> {
        self.check(bytes.len())?;
        self.size += bytes.len() as u64;
        self.digest.update(bytes);
        self.sniffer.take(bytes);
        Ok(())
    }

    /// That was all.
    pub(super) fn finish(self, name: String) -> Media {
        let mime = self.sniffer.finish().to_owned();
        Media { id: spelled(&self.digest.finalize()), name, mime, size: self.size }
    }
}

/// The id of content.
pub(super) fn id_of(bytes: &[u8]) -> MediaId {
    spelled(&Sha256::digest(bytes))
}

fn spelled(hash: &[u8]) -> MediaId {
    let digits: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    MediaId::parse(&digits).expect("a hash is shorter than the longest id")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_the_sha_256_of_the_content() {
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(id_of(b"abc").as_str(), known);
        let mut gauge = Gauge::new(3);
        gauge.take(b"a").unwrap();
        gauge.take(b"bc").unwrap();
        let media = gauge.finish("n".to_owned());
        assert_eq!((media.id.as_str(), media.mime.as_str(), media.size), (known, "text/plain", 3));
    }

    #[test]
    fn the_last_byte_that_is_allowed_is_taken_and_the_next_is_not() {
        let mut gauge = Gauge::new(2);
        gauge.take(b"ab").unwrap();
        assert!(matches!(gauge.take(b"c"), Err(MediaError::TooLarge { limit: 2 })));
    }
}
