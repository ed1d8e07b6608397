//! The records of sessions that this process holds, so that an append need not read them first.

use std::collections::HashMap;

use parlor_vocab::SessionId;

use crate::SessionRecord;
use crate::lease::Token;

/// The largest number of records in the cache. Above it, any record is dropped, and read again when it is needed.
pub const MAX_CACHED_RECORDS: usize = 4096;

/// Records as they are in the database. Only the holder of a lease changes a record, so they stay valid with the lease.
#[derive(Default)]
pub(super) struct RecordCache(HashMap<SessionId, (Token, SessionRecord)>);

impl RecordCache {
    /// The record, if it is known under this lease.
    pub(super) fn get(&self, session: &SessionId, token: Token) -> Option<&SessionRecord> {
        self.0.get(session).filter(|(cached, _)| *cached == token).map(|(_, record)| record)
    }

    pub(super) fn put(&mut self, token: Token, record: SessionRecord) {
        if self.0.len() >= MAX_CACHED_RECORDS && !self.0.contains_key(&record.id) {
            let any = self.0.keys().next().cloned();
            any.iter().for_each(|session| self.remove(session));
        }
        self.0.insert(record.id.clone(), (token, record));
    }

    pub(super) fn remove(&mut self, session: &SessionId) {
        self.0.remove(session);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_bounded_and_belongs_to_a_lease() {
        let mut cache = RecordCache::default();
        let session = |number: usize| SessionId::parse(&number.to_string()).unwrap();
        for number in 0..MAX_CACHED_RECORDS + 10 {
            cache.put(Token(1), SessionRecord::new(session(number)));
        }
        assert_eq!(cache.0.len(), MAX_CACHED_RECORDS);
        let last = session(MAX_CACHED_RECORDS + 9);
        assert!(cache.get(&last, Token(1)).is_some());
        assert!(cache.get(&last, Token(2)).is_none());
        cache.remove(&last);
        assert!(cache.get(&last, Token(1)).is_none());
    }
}
