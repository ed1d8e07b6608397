//! Computes size, type and hash of content on its way into the store.

use parlor_vocab::{Media, MediaId};
use sha2::{Digest, Sha256};

use super::MediaError;
use super::sniff::Sniffer;

/// Computes size, type and hash of bytes that arrive in pieces of any size.
pub(super) struct ContentScanner {
    limit: u64,
    size: u64,
    digest: Sha256,
    sniffer: Sniffer,
}

impl ContentScanner {
    /// A scanner that fails beyond `limit` bytes.
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, size: 0, digest: Sha256::new(), sniffer: Sniffer::default() }
    }

    /// Fails if `more` bytes would exceed the limit.
    pub(super) fn check(&self, more: usize) -> Result<(), MediaError> {
        let fits = self.size.saturating_add(more as u64) <= self.limit;
        if fits { Ok(()) } else { Err(MediaError::TooLarge { limit: self.limit }) }
    }

    /// Adds the next bytes. Fails if they exceed the limit.
    pub(super) fn update(&mut self, bytes: &[u8]) -> Result<(), MediaError> {
        self.check(bytes.len())?;
        self.size += bytes.len() as u64;
        self.digest.update(bytes);
        self.sniffer.update(bytes);
        Ok(())
    }

    /// Returns the result for all bytes so far, with the file name `name`.
    pub(super) fn finish(self, name: String) -> Media {
        let mime = self.sniffer.finish().to_owned();
        Media { id: hex_id(&self.digest.finalize()), name, mime, size: self.size }
    }
}

/// The id of a file with this content.
pub(super) fn id_of(bytes: &[u8]) -> MediaId {
    hex_id(&Sha256::digest(bytes))
}

fn hex_id(hash: &[u8]) -> MediaId {
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
        let mut scanner = ContentScanner::new(3);
        scanner.update(b"a").unwrap();
        scanner.update(b"bc").unwrap();
        let media = scanner.finish("n".to_owned());
        assert_eq!((media.id.as_str(), media.mime.as_str(), media.size), (known, "text/plain", 3));
    }

    #[test]
    fn content_of_the_limit_fits_and_one_byte_more_fails() {
        let mut scanner = ContentScanner::new(2);
        scanner.update(b"ab").unwrap();
        assert!(matches!(scanner.update(b"c"), Err(MediaError::TooLarge { limit: 2 })));
    }
}
