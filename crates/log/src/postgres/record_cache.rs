//! The records of sessions that this process holds, so that an append need not read them first.

use std::collections::HashMap;

use parlor_vocab::SessionId;

use super::MAX_GROUP;
use crate::SessionRecord;
use crate::lease::Token;

/// The largest number of records in the cache. A full cache is emptied: one statement reads the records of a group again.
pub const MAX_CACHED_RECORDS: usize = 4096;

/// Records as they are in the database. Only the holder of a lease changes a record, so they stay valid with the lease.
#[derive(Default)]
pub(super) struct RecordCache(HashMap<SessionId, (Token, SessionRecord)>);

impl RecordCache {
    /// The record, if it is known under this lease.
    pub(super) fn get(&self, session: &SessionId, token: Token) -> Option<&SessionRecord> {
        self.0.get(session).filter(|(cached, _)| *cached == token).map(|(_, record)| record)
    }

    /// Makes room for the records of a group. Called before they are read, so that none of them is dropped again.
    pub(super) fn make_room(&mut self) {
        if self.0.len() + MAX_GROUP > MAX_CACHED_RECORDS {
            self.0.clear();
        }
    }

    pub(super) fn put(&mut self, token: Token, record: SessionRecord) {
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
        for group in 0..100 {
            cache.make_room();
            for number in group * MAX_GROUP..(group + 1) * MAX_GROUP {
                cache.put(Token(1), SessionRecord::new(session(number)));
            }
            assert!(cache.0.len() <= MAX_CACHED_RECORDS);
        }
        let last = session(100 * MAX_GROUP - 1);
        assert!(cache.get(&last, Token(1)).is_some());
        assert!(cache.get(&last, Token(2)).is_none());
        cache.remove(&last);
        assert!(cache.get(&last, Token(1)).is_none());
    }
}
