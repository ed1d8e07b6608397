//! The cached history of a session.
//!
//! A conversation can be of any length, so an open session need not hold all of it in memory: the actor can drop the
//! cache and read it from the log again, after [`from`](History::from). Nothing here reads the log.

use parlor_log::HistorySnapshot;
use parlor_vocab::{
    CountedItem, Failure, HistoryItem, Message, MessageCounter, MessageId, RunEnding, Seq, ToolCallId,
};

/// The approximate size in bytes of an item without its texts.
const ITEM_BYTES: usize = 256;

/// History items, oldest first, with the log positions they come from.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct History {
    items: Vec<HistoryItem>,
    /// For each item, the log position after which reading must start to rebuild it.
    origins: Vec<Seq>,
    /// The approximate size of all items.
    bytes: usize,
    from: Seq,
    /// Whether the items were dropped from memory and must be read from the log.
    is_dropped: bool,
    /// Whether [`keep_newest`](Self::keep_newest) dropped the oldest items.
    is_cut: bool,
    counts: Counts,
}

/// The number of messages, which is kept when the items are dropped.
#[derive(Clone, Debug, Default, PartialEq)]
struct Counts {
    /// The items before the active run.
    settled: MessageCounter,
    /// The items since then, which may still change.
    recent: Vec<(ItemId, CountedItem)>,
    /// Whether items were removed that nobody could count.
    is_lost: bool,
}

impl Counts {
    /// All items. `None` if nobody could count them.
    fn counter(&self) -> Option<MessageCounter> {
        let mut counter = self.settled;
        self.recent.iter().for_each(|(_, item)| counter.add(*item));
        (!self.is_lost).then_some(counter)
    }
}

/// What an item that may change is found by.
#[derive(Clone, Debug, PartialEq)]
enum ItemId {
    Message(MessageId),
    Call(ToolCallId),
    Other,
}

impl History {
    /// All items; empty if they were dropped.
    pub(super) fn items(&self) -> &[HistoryItem] {
        &self.items
    }

    /// Whether the items are in memory.
    pub(crate) fn is_cached(&self) -> bool {
        !self.is_dropped
    }

    /// The log position after which all items can be read.
    pub(crate) fn from(&self) -> Seq {
        self.from
    }

    /// The items of a history that was read from the log.
    pub(crate) fn into_items(self) -> Vec<HistoryItem> {
        self.items
    }

    /// Drops all items from memory if they take more than `max_bytes`.
    pub(crate) fn drop_beyond(&mut self, max_bytes: usize) {
        if self.bytes > max_bytes {
            let counts = std::mem::take(&mut self.counts);
            *self = Self { from: self.from, is_dropped: true, counts, ..Self::default() };
        }
    }

    /// Drops tool uses, then the oldest items, until the rest takes at most `max_bytes`. For callers that show only
    /// messages.
    pub(crate) fn keep_newest(&mut self, max_bytes: usize) {
        let is_tool_use = |item: &HistoryItem| matches!(item, HistoryItem::ToolUse(_));
        let kept: Vec<(HistoryItem, Seq)> = std::mem::take(&mut self.items)
            .into_iter()
            .zip(std::mem::take(&mut self.origins))
            .filter(|(item, _)| !is_tool_use(item))
            .collect();
        self.bytes = kept.iter().map(|(item, _)| text_bytes(item)).sum();
        let mut dropped = 0;
        while self.bytes > max_bytes
            && let Some((item, _)) = kept.get(dropped)
        {
            self.bytes -= text_bytes(item);
            dropped += 1;
        }
        self.is_cut |= dropped > 0;
        (self.items, self.origins) = kept.into_iter().skip(dropped).unzip();
    }

    /// Whether the oldest items were dropped.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// The number of messages, as model APIs count them. `None` if it must be counted from the log.
    pub(crate) fn message_count(&self) -> Option<u64> {
        self.counts.counter().map(|counter| counter.count())
    }

    /// The history for a snapshot, in which no run is active. It has the items if they are in memory.
    pub(super) fn snapshot(&self) -> HistorySnapshot {
        HistorySnapshot {
            from: self.from,
            items: self.is_cached().then(|| self.items.iter().cloned().zip(self.origins.clone()).collect()),
            messages: self.counts.counter(),
        }
    }

    pub(super) fn from_snapshot(snapshot: HistorySnapshot) -> Self {
        let HistorySnapshot { from, items, messages } = snapshot;
        let is_dropped = items.is_none();
        let (items, origins): (Vec<_>, Vec<_>) = items.unwrap_or_default().into_iter().unzip();
        let bytes = items.iter().map(text_bytes).sum();
        let (is_lost, settled) = (messages.is_none(), messages.unwrap_or_default());
        let counts = Counts { settled, recent: Vec::new(), is_lost };
        Self { items, origins, bytes, from, is_dropped, is_cut: false, counts }
    }

    /// Takes the number of messages from `other`: this history was read from a later position.
    pub(crate) fn with_counts_of(self, other: &Self) -> Self {
        Self { counts: other.counts.clone(), ..self }
    }

    /// Called when no run is active: the items so far will not change.
    pub(super) fn settle(&mut self) {
        for (_, item) in self.counts.recent.drain(..) {
            self.counts.settled.add(item);
        }
    }

    /// Adds an item. `origin` is the log position after which reading must start to rebuild it.
    pub(crate) fn push(&mut self, item: HistoryItem, origin: Seq) {
        let id = match &item {
            HistoryItem::Message(message) => ItemId::Message(message.id.clone()),
            HistoryItem::ToolUse(tool_use) => ItemId::Call(tool_use.call.clone()),
            HistoryItem::UnfinishedRun { .. } => ItemId::Other,
        };
        self.counts.recent.push((id, CountedItem::of(&item)));
        if !self.is_dropped {
            self.bytes += text_bytes(&item);
            self.items.push(item);
            self.origins.push(origin);
        }
    }

    /// Adds the result of a tool call to its item.
    pub(super) fn set_tool_result(&mut self, call: &ToolCallId, result: Result<String, Failure>) {
        // Searched from the end, because the call belongs to the active run.
        let is_call = |id: &ItemId| matches!(id, ItemId::Call(known) if known == call);
        if let Some((_, counted)) = self.counts.recent.iter_mut().rev().find(|(id, _)| is_call(id)) {
            *counted = CountedItem::Call { has_result: true };
        }
        let tool_use = self.items.iter_mut().rev().find_map(|item| match item {
            HistoryItem::ToolUse(tool_use) if tool_use.call == *call => Some(tool_use),
            HistoryItem::ToolUse(_) | HistoryItem::Message(_) | HistoryItem::UnfinishedRun { .. } => None,
        });
        if let Some(tool_use) = tool_use {
            self.bytes += result_bytes(&result);
            tool_use.result = Some(result);
        }
    }

    /// Removes a message, which is one of the last.
    pub(super) fn remove_message(&mut self, message: &MessageId) {
        let is_removed = |id: &ItemId| matches!(id, ItemId::Message(known) if known == message);
        self.counts.recent.retain(|(id, _)| !is_removed(id));
        if let Some(index) = self.items.iter().rposition(|item| is_message(item, message)) {
            self.bytes -= text_bytes(&self.items.remove(index));
            self.origins.remove(index);
        }
    }

    /// Removes all items. `seq` is the position of the event that says so.
    pub(super) fn clear(&mut self, seq: Seq) {
        *self = Self { from: seq, ..Self::default() };
    }

    /// Replaces the items before the message `kept_from` with `summary`, or all items if it is `None`. `seq` is the
    /// position of the event that says so.
    pub(super) fn compact(&mut self, summary: &Message, kept_from: Option<&MessageId>, seq: Seq) {
        let Some(kept_from) = kept_from else {
            self.clear(Seq(seq.0 - 1));
            return self.push(HistoryItem::Message(summary.clone()), self.from);
        };
        if self.is_dropped {
            self.counts.is_lost = true;
            return;
        }
        // If the message is missing, reading began after it, and all items here come after it.
        let first_kept = self.items.iter().position(|item| is_message(item, kept_from));
        let first = first_kept.unwrap_or(0);
        let (items, origins) = (self.items.split_off(first), self.origins.split_off(first));
        let from = origins.first().copied().unwrap_or(self.from);
        // If the message is missing, `keep_newest` may have dropped items that come after it.
        let is_cut = self.is_cut && first_kept.is_none();
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
        HistoryItem::ToolUse(_) | HistoryItem::UnfinishedRun { .. } => None,
    }
}

fn is_message(item: &HistoryItem, id: &MessageId) -> bool {
    message_of(item).is_some_and(|message| message.id == *id)
}

fn text_bytes(item: &HistoryItem) -> usize {
    let texts = match item {
        HistoryItem::Message(message) => message.text.len() + message.media.len() * ITEM_BYTES,
        HistoryItem::ToolUse(tool_use) => {
            tool_use.input.len() + tool_use.result.as_ref().map_or(0, result_bytes)
        }
        HistoryItem::UnfinishedRun { ending, .. } => match ending {
            RunEnding::Failed(failure) => failure.message.len(),
            RunEnding::Stopped { cause, .. } => cause.reason().len(),
            RunEnding::Completed { .. } => 0,
        },
    };
    ITEM_BYTES + texts
}

fn result_bytes(result: &Result<String, Failure>) -> usize {
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
    fn a_dropped_history_stays_dropped_until_all_of_it_is_replaced() {
        let mut history = History::default();
        history.push(HistoryItem::Message(message("a", "12345")), Seq(0));
        history.drop_beyond(ITEM_BYTES + 5);
        assert!(history.is_cached());
        history.drop_beyond(ITEM_BYTES + 4);
        assert!(!history.is_cached() && history.items().is_empty());
        history.push(HistoryItem::Message(message("b", "")), Seq(1));
        assert!(history.items().is_empty(), "an incomplete history would be wrong");
        history.compact(&message("s", "summary"), None, Seq(9));
        assert!(history.is_cached());
        assert_eq!((history.items().len(), history.from()), (1, Seq(8)));
    }

    #[test]
    fn the_number_of_messages_is_known_without_the_items() {
        let call = ToolCallId::parse("c").unwrap();
        let item = |result| {
            let (tool, input) = ("shell".to_owned(), String::new());
            HistoryItem::ToolUse(parlor_vocab::ToolUse { call: call.clone(), tool, input, result })
        };
        let mut history = History::default();
        history.push(HistoryItem::Message(message("a", "text")), Seq(0));
        history.settle();
        history.drop_beyond(0);
        history.push(HistoryItem::Message(message("b", "")), Seq(1));
        history.push(item(None), Seq(1));
        assert_eq!(history.message_count(), Some(3));
        history.set_tool_result(&call, Ok(String::new()));
        assert_eq!(history.message_count(), Some(4), "the result is a message");
        history.remove_message(&MessageId::parse("b").unwrap());
        assert_eq!(history.message_count(), Some(3));
        history.settle();
        assert_eq!((history.message_count(), history.counts.recent.len()), (Some(3), 0));
        history.compact(&message("s", ""), Some(&MessageId::parse("b").unwrap()), Seq(9));
        assert_eq!(history.message_count(), None, "nobody knows what was kept");
        history.compact(&message("s", ""), None, Seq(10));
        assert_eq!(history.message_count(), Some(1));
    }

    #[test]
    fn keep_newest_reports_that_older_items_are_missing() {
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
        assert!(history.is_cut(), "items after the summary are still missing");
        history.compact(&message("s", ""), Some(&MessageId::parse("c").unwrap()), Seq(9));
        assert!(!history.is_cut());
        history.keep_newest(0);
        assert!(history.is_cut() && history.items().is_empty() && history.bytes == 0);
        history.clear(Seq(10));
        assert!(!history.is_cut());
    }

    #[test]
    fn the_size_counts_exactly_the_present_items() {
        let mut history = History::default();
        for id in ["a", "b", "c"] {
            history.push(HistoryItem::Message(message(id, "123")), Seq(0));
        }
        history.remove_message(&MessageId::parse("c").unwrap());
        history.compact(&message("s", "12345"), Some(&MessageId::parse("b").unwrap()), Seq(9));
        assert_eq!(history.bytes, 2 * ITEM_BYTES + 8);
        assert_eq!(history.items.len(), history.origins.len());
    }
}
