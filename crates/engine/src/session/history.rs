//! What was said and done in a session, as far as it is at hand.
//!
//! A conversation may be as long as it likes, so who has a session open need not hold all of it: it can be
//! let go and read from the log again, from [`from`](History::from) on. Nothing here reads.

use parlor_vocab::{Failure, HistoryItem, Message, MessageId, RunEnding, Seq, ToolCallId};

/// What a item takes beside its texts, in bytes: about the size of its ids and of what holds them.
const ITEM_BYTES: usize = 256;

/// Passages, oldest first, and where the log tells them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct History {
    items: Vec<HistoryItem>,
    /// For each item the place after which the log has to be read to come to it.
    origins: Vec<Seq>,
    bytes: usize,
    from: Seq,
    is_dropped: bool,
    /// Whether the oldest items were dropped, see [`keep_newest`](Self::keep_newest).
    is_cut: bool,
}

impl History {
    /// All items; none if they were let go.
    pub(super) fn items(&self) -> &[HistoryItem] {
        &self.items
    }

    /// Whether the items are here.
    pub(crate) fn is_cached(&self) -> bool {
        !self.is_dropped
    }

    /// The place after which the log tells all of it.
    pub(crate) fn from(&self) -> Seq {
        self.from
    }

    /// The items, for whoever has read them.
    pub(crate) fn into_passages(self) -> Vec<HistoryItem> {
        self.items
    }

    /// Lets go of the items if they take more than `max_bytes`.
    pub(crate) fn drop_beyond(&mut self, max_bytes: usize) {
        if self.bytes > max_bytes {
            *self = Self { from: self.from, is_dropped: true, ..Self::default() };
        }
    }

    /// For whoever only tells what was said: drops what tools did, then the oldest items, until the rest takes no more
    /// than `max_bytes`.
    pub(crate) fn keep_newest(&mut self, max_bytes: usize) {
        let is_said = |item: &HistoryItem| !matches!(item, HistoryItem::ToolUse(_));
        let said: Vec<(HistoryItem, Seq)> = std::mem::take(&mut self.items)
            .into_iter()
            .zip(std::mem::take(&mut self.origins))
            .filter(|(item, _)| is_said(item))
            .collect();
        self.bytes = said.iter().map(|(item, _)| text_bytes(item)).sum();
        let mut dropped = 0;
        while self.bytes > max_bytes
            && let Some((item, _)) = said.get(dropped)
        {
            self.bytes -= text_bytes(item);
            dropped += 1;
        }
        self.is_cut |= dropped > 0;
        (self.items, self.origins) = said.into_iter().skip(dropped).unzip();
    }

    /// Whether the oldest items were dropped.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }

    pub(crate) fn push(&mut self, item: HistoryItem, origin: Seq) {
        if !self.is_dropped {
            self.bytes += text_bytes(&item);
            self.items.push(item);
            self.origins.push(origin);
        }
    }

    /// What came of a tool.
    pub(super) fn give_back(&mut self, call: &ToolCallId, result: Result<String, Failure>) {
        // The call is near the end: its run is the active one.
        let used = self.items.iter_mut().rev().find_map(|item| match item {
            HistoryItem::ToolUse(used) if used.call == *call => Some(used),
            HistoryItem::ToolUse(_) | HistoryItem::Message(_) | HistoryItem::BrokenOff(_) => None,
        });
        if let Some(used) = used {
            self.bytes += of_result(&result);
            used.result = Some(result);
        }
    }

    /// Takes out a message that nobody said. It is one of the last.
    pub(super) fn take_out(&mut self, message: &MessageId) {
        if let Some(place) = self.items.iter().rposition(|item| is_message(item, message)) {
            self.bytes -= text_bytes(&self.items.remove(place));
            self.origins.remove(place);
        }
    }

    /// All is forgotten, by the event at `seq`.
    pub(super) fn clear(&mut self, seq: Seq) {
        *self = Self { from: seq, ..Self::default() };
    }

    /// `summary` stands in the place of what was said before the message `kept_from`, or of all. The event that
    /// says so is at `seq`.
    pub(super) fn compact(&mut self, summary: &Message, kept_from: Option<&MessageId>, seq: Seq) {
        let Some(kept_from) = kept_from else {
            self.clear(Seq(seq.0 - 1));
            return self.push(HistoryItem::Message(summary.clone()), self.from);
        };
        if self.is_dropped {
            return;
        }
        // If it is not there, the reading began after it: what is here is all that can be kept.
        let kept = self.items.iter().position(|item| is_message(item, kept_from));
        let first = kept.unwrap_or(0);
        let (items, origins) = (self.items.split_off(first), self.origins.split_off(first));
        let from = origins.first().copied().unwrap_or(self.from);
        // If the message is not there, others that are kept may have been dropped too.
        let is_cut = self.is_cut && kept.is_none();
        *self = Self { from, is_cut, ..Self::default() };
        self.push(HistoryItem::Message(summary.clone()), from);
        for (item, origin) in items.into_iter().zip(origins) {
            self.push(item, origin);
        }
    }
}

pub(super) fn message_of(item: &HistoryItem) -> Option<&Message> {
    match item {
        HistoryItem::Message(message) => Some(message),
        HistoryItem::ToolUse(_) | HistoryItem::BrokenOff(_) => None,
    }
}

fn is_message(item: &HistoryItem, id: &MessageId) -> bool {
    message_of(item).is_some_and(|message| message.id == *id)
}

fn text_bytes(item: &HistoryItem) -> usize {
    let texts = match item {
        HistoryItem::Message(message) => message.text.len() + message.media.len() * ITEM_BYTES,
        HistoryItem::ToolUse(used) => used.input.len() + used.result.as_ref().map_or(0, of_result),
        HistoryItem::BrokenOff(RunEnding::Failed(failure)) => failure.message.len(),
        HistoryItem::BrokenOff(RunEnding::Stopped { cause, .. }) => cause.reason().len(),
        HistoryItem::BrokenOff(RunEnding::Completed { .. }) => 0,
    };
    ITEM_BYTES + texts
}

fn of_result(result: &Result<String, Failure>) -> usize {
    match result {
        Ok(output) => output.len(),
        Err(failure) => failure.message.len(),
    }
}

#[cfg(test)]
mod tests {
    use parlor_vocab::Role;

    use super::*;

    fn message(id: &str, text: &str) -> Message {
        let id = MessageId::parse(id).unwrap();
        Message { id, role: Role::User, text: text.to_owned(), media: Vec::new() }
    }

    #[test]
    fn what_was_let_go_stays_away_until_all_is_said_anew() {
        let mut history = History::default();
        history.push(HistoryItem::Message(message("a", "12345")), Seq(0));
        history.drop_beyond(ITEM_BYTES + 5);
        assert!(history.is_cached());
        history.drop_beyond(ITEM_BYTES + 4);
        assert!(!history.is_cached() && history.items().is_empty());
        history.push(HistoryItem::Message(message("b", "")), Seq(1));
        assert!(history.items().is_empty(), "half of it would be wrong");
        history.compact(&message("s", "summary"), None, Seq(9));
        assert!(history.is_cached());
        assert_eq!((history.items().len(), history.from()), (1, Seq(8)));
    }

    #[test]
    fn the_newest_are_kept_and_it_is_known_that_others_are_missing() {
        let mut history = History::default();
        for id in ["a", "b", "c"] {
            history.push(HistoryItem::Message(message(id, "123")), Seq(0));
        }
        history.keep_newest(3 * (ITEM_BYTES + 3));
        assert!(!history.is_cut() && history.items().len() == 3);
        history.keep_newest(2 * (ITEM_BYTES + 3));
        assert!(history.is_cut() && history.is_cached());
        assert_eq!((history.items().len(), history.bytes), (2, 2 * (ITEM_BYTES + 3)));
        history.compact(&message("s", ""), Some(&MessageId::parse("a").unwrap()), Seq(9));
        assert!(history.is_cut(), "the summary is followed by what is there of the rest");
        history.compact(&message("s", ""), Some(&MessageId::parse("c").unwrap()), Seq(9));
        assert!(!history.is_cut());
        history.keep_newest(0);
        assert!(history.is_cut() && history.items().is_empty() && history.bytes == 0);
        history.clear(Seq(10));
        assert!(!history.is_cut());
    }

    #[test]
    fn weights_are_those_of_what_is_there() {
        let mut history = History::default();
        for id in ["a", "b", "c"] {
            history.push(HistoryItem::Message(message(id, "123")), Seq(0));
        }
        history.take_out(&MessageId::parse("c").unwrap());
        history.compact(&message("s", "12345"), Some(&MessageId::parse("b").unwrap()), Seq(9));
        assert_eq!(history.bytes, 2 * ITEM_BYTES + 8);
        assert_eq!(history.items.len(), history.origins.len());
    }
}
