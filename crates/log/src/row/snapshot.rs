//! The stored form of snapshots.

use parlor_vocab::{
    AgentId, EventId, HistoryItem, MessageCounter, MessageId, QuestionId, QueuedInput, RunId, Seq,
    ToolCallId, ToolUse,
};
use serde::{Deserialize, Serialize};

use super::parts::{ChoiceRow, FailureRow, InputRow, MessageRow, Text, UsageRow, optional_text, text};
use super::question::{ModeRow, OutcomeRow};
use super::run::EndingRow;
use super::session::NewSessionRow;
use super::{Row, RowError};
use crate::snapshot::{HistorySnapshot, SessionSnapshot};

/// The version of snapshots that parlor writes and reads. It grows when the form changes, and when the same events lead to
/// another state: snapshots of other versions are ignored, so that the state is computed from the events again.
pub(crate) const SNAPSHOT_VERSION: i64 = 1;

#[derive(Serialize, Deserialize)]
struct SnapshotRow<'a> {
    #[serde(borrow)]
    created: NewSessionRow<'a>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    title: Option<Text<'a>>,
    #[serde(default, skip_serializing_if = "ChoiceRow::is_empty")]
    choice: ChoiceRow<'a>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<ModeRow>,
    history: HistoryRow<'a>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    queue: Vec<QueuedRow<'a>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    keys: Vec<(Text<'a>, Text<'a>)>,
    usage: UsageRow,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reported_missing: Option<Text<'a>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    settled: Vec<(Text<'a>, OutcomeRow<'a>)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trust_answer: Option<bool>,
}

#[derive(Serialize, Deserialize)]
struct HistoryRow<'a> {
    from: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(borrow)]
    items: Option<Vec<(u64, ItemRow<'a>)>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    messages: Option<CounterRow>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ItemRow<'a> {
    #[serde(borrow)]
    Message(MessageRow<'a>),
    Tool {
        call: Text<'a>,
        tool: Text<'a>,
        input: Text<'a>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<ToolResultRow<'a>>,
    },
    Unfinished {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<Text<'a>>,
        ending: EndingRow<'a>,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ToolResultRow<'a> {
    #[serde(borrow)]
    Output(Text<'a>),
    Failed(FailureRow<'a>),
}

#[derive(Serialize, Deserialize)]
struct CounterRow {
    closed: u64,
    has_texts: bool,
    has_results: bool,
}

#[derive(Serialize, Deserialize)]
struct QueuedRow<'a> {
    #[serde(borrow)]
    run: Text<'a>,
    input: InputRow<'a>,
}

/// Encodes a snapshot in the current version, without its position.
pub(crate) fn encode_snapshot(snapshot: &SessionSnapshot) -> Row {
    let body = serde_json::to_string(&SnapshotRow::from(snapshot));
    let body = body.expect("rows have string keys and no failing serializer");
    Row { version: SNAPSHOT_VERSION, body }
}

/// Decodes a snapshot of the current version, which was stored with this position.
pub(crate) fn decode_snapshot(seq: Seq, event: EventId, body: &str) -> Result<SessionSnapshot, RowError> {
    let row: SnapshotRow<'_> = serde_json::from_str(body)?;
    let queued = |row: QueuedRow<'_>| {
        Ok::<_, RowError>(QueuedInput { run: RunId::parse(&row.run)?, input: row.input.into_input()? })
    };
    let key = |(key, run): (Text<'_>, Text<'_>)| Ok::<_, RowError>((key.into_owned(), RunId::parse(&run)?));
    let settled = |(id, outcome): (Text<'_>, OutcomeRow<'_>)| {
        Ok::<_, RowError>((QuestionId::parse(&id)?, outcome.into_outcome()))
    };
    Ok(SessionSnapshot {
        seq,
        event,
        new_session: row.created.into_new_session()?,
        title: row.title.map(Text::into_owned),
        choice: row.choice.into_choice()?,
        mode: row.mode.map(ModeRow::into_mode),
        history: row.history.into_history()?,
        queue: row.queue.into_iter().map(queued).collect::<Result<_, _>>()?,
        keys: row.keys.into_iter().map(key).collect::<Result<_, _>>()?,
        usage: row.usage.into_usage(),
        reported_missing: row.reported_missing.map(|id| AgentId::parse(&id)).transpose()?,
        settled: row.settled.into_iter().map(settled).collect::<Result<_, _>>()?,
        trust_answer: row.trust_answer,
    })
}

impl<'a> From<&'a SessionSnapshot> for SnapshotRow<'a> {
    fn from(snapshot: &'a SessionSnapshot) -> Self {
        let queued = |queued: &'a QueuedInput| QueuedRow {
            run: text(queued.run.as_str()),
            input: InputRow::from(&queued.input),
        };
        Self {
            created: NewSessionRow::from(&snapshot.new_session),
            title: optional_text(&snapshot.title),
            choice: ChoiceRow::from(&snapshot.choice),
            mode: snapshot.mode.map(ModeRow::from),
            history: HistoryRow::from(&snapshot.history),
            queue: snapshot.queue.iter().map(queued).collect(),
            keys: snapshot.keys.iter().map(|(key, run)| (text(key), text(run.as_str()))).collect(),
            usage: UsageRow::from(&snapshot.usage),
            reported_missing: snapshot.reported_missing.as_ref().map(|id| text(id.as_str())),
            settled: snapshot
                .settled
                .iter()
                .map(|(id, outcome)| (text(id.as_str()), outcome.into()))
                .collect(),
            trust_answer: snapshot.trust_answer,
        }
    }
}

impl HistoryRow<'_> {
    fn into_history(self) -> Result<HistorySnapshot, RowError> {
        let item = |(origin, row): (u64, ItemRow<'_>)| Ok::<_, RowError>((row.into_item()?, Seq(origin)));
        let items = |items: Vec<_>| items.into_iter().map(item).collect::<Result<_, _>>();
        let messages = self.messages.map(|CounterRow { closed, has_texts, has_results }| MessageCounter {
            closed,
            has_texts,
            has_results,
        });
        Ok(HistorySnapshot { from: Seq(self.from), items: self.items.map(items).transpose()?, messages })
    }
}

impl<'a> From<&'a HistorySnapshot> for HistoryRow<'a> {
    fn from(history: &'a HistorySnapshot) -> Self {
        let item = |(item, origin): &'a (HistoryItem, Seq)| (origin.0, ItemRow::from(item));
        let counter =
            |MessageCounter { closed, has_texts, has_results }| CounterRow { closed, has_texts, has_results };
        Self {
            from: history.from.0,
            items: history.items.as_ref().map(|items| items.iter().map(item).collect()),
            messages: history.messages.map(counter),
        }
    }
}

impl ItemRow<'_> {
    fn into_item(self) -> Result<HistoryItem, RowError> {
        Ok(match self {
            Self::Message(message) => HistoryItem::Message(message.into_message()?),
            Self::Tool { call, tool, input, result } => HistoryItem::ToolUse(ToolUse {
                call: ToolCallId::parse(&call)?,
                tool: tool.into_owned(),
                input: input.into_owned(),
                result: result.map(|result| match result {
                    ToolResultRow::Output(output) => Ok(output.into_owned()),
                    ToolResultRow::Failed(failure) => Err(failure.into_failure()),
                }),
            }),
            Self::Unfinished { input, ending } => HistoryItem::UnfinishedRun {
                input: input.map(|id| MessageId::parse(&id)).transpose()?,
                ending: ending.into_ending()?,
            },
        })
    }
}

impl<'a> From<&'a HistoryItem> for ItemRow<'a> {
    fn from(item: &'a HistoryItem) -> Self {
        match item {
            HistoryItem::Message(message) => Self::Message(message.into()),
            HistoryItem::ToolUse(ToolUse { call, tool, input, result }) => Self::Tool {
                call: text(call.as_str()),
                tool: text(tool),
                input: text(input),
                result: result.as_ref().map(|result| match result {
                    Ok(output) => ToolResultRow::Output(text(output)),
                    Err(failure) => ToolResultRow::Failed(failure.into()),
                }),
            },
            HistoryItem::UnfinishedRun { input, ending } => {
                Self::Unfinished { input: input.as_ref().map(|id| text(id.as_str())), ending: ending.into() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use parlor_vocab::{
        AgentChoice, MessageEvent, NewSession, QuestionEvent, RunEvent, SessionEvent, ToolEvent, Usage,
    };
    use proptest::prelude::*;

    use super::super::samples;
    use super::*;

    /// A snapshot with the parts of these events.
    fn snapshot_of(events: &[SessionEvent]) -> SessionSnapshot {
        let mut snapshot = SessionSnapshot {
            seq: Seq(events.len() as u64),
            event: EventId::parse("evt").unwrap(),
            new_session: NewSession {
                title: None,
                door: "d".to_owned(),
                folder: "/w".into(),
                choice: AgentChoice::default(),
                system: None,
                forked_from: None,
            },
            title: None,
            choice: AgentChoice::default(),
            mode: None,
            history: HistorySnapshot { from: Seq(1), items: None, messages: None },
            queue: Vec::new(),
            keys: Vec::new(),
            usage: Usage::default(),
            reported_missing: None,
            settled: Vec::new(),
            trust_answer: Some(true),
        };
        let mut items = Vec::new();
        for (event, seq) in events.iter().zip(1..) {
            match event {
                SessionEvent::Created(new_session) => snapshot.new_session = new_session.clone(),
                SessionEvent::Renamed { title } => snapshot.title = Some(title.clone()),
                SessionEvent::AgentChosen(choice) => snapshot.choice = choice.clone(),
                SessionEvent::ModeChosen { mode } => snapshot.mode = Some(*mode),
                SessionEvent::Queued(queued) => {
                    let key = queued.input.key.clone().unwrap_or_default();
                    snapshot.keys.push((key, queued.run.clone()));
                    snapshot.queue.push(queued.clone());
                }
                SessionEvent::Cleared => snapshot.history.messages = Some(MessageCounter::default()),
                SessionEvent::Compacted { summary, .. } => {
                    let (closed, has_texts) = (seq, summary.media.is_empty());
                    let counter = MessageCounter { closed, has_texts, has_results: !has_texts };
                    snapshot.history.messages = Some(counter);
                }
                SessionEvent::MessageAdded(message) => {
                    items.push((HistoryItem::Message(message.clone()), Seq(seq)));
                }
                SessionEvent::Unqueued { .. } => snapshot.history.items = None,
                SessionEvent::Run { event, .. } => add(&mut snapshot, &mut items, event, Seq(seq)),
            }
        }
        if !items.is_empty() {
            snapshot.history.items = Some(items);
        }
        snapshot
    }

    fn add(
        snapshot: &mut SessionSnapshot,
        items: &mut Vec<(HistoryItem, Seq)>,
        event: &RunEvent,
        origin: Seq,
    ) {
        let tool_use = |call: &ToolCallId, input: &str, result| {
            let (call, tool, input) = (call.clone(), "shell".to_owned(), input.to_owned());
            HistoryItem::ToolUse(ToolUse { call, tool, input, result })
        };
        match event {
            RunEvent::Started { missing_agent, .. } => snapshot.reported_missing.clone_from(missing_agent),
            RunEvent::UsageAdded { usage, .. } => snapshot.usage = *usage,
            RunEvent::Question(QuestionEvent::Settled { question, outcome }) => {
                snapshot.settled.push((question.clone(), outcome.clone()));
            }
            RunEvent::Tool(ToolEvent::Called { call, input, .. }) => {
                items.push((tool_use(call, input, None), origin));
            }
            RunEvent::Tool(ToolEvent::Completed { call, output, .. }) => {
                items.push((tool_use(call, "", Some(Ok(output.clone()))), origin));
            }
            RunEvent::Tool(ToolEvent::Failed { call, failure, .. }) => {
                items.push((tool_use(call, "", Some(Err(failure.clone()))), origin));
            }
            RunEvent::Message(MessageEvent::Started { message }) => {
                let ending = parlor_vocab::RunEnding::Completed { message: None };
                items.push((HistoryItem::UnfinishedRun { input: Some(message.clone()), ending }, origin));
            }
            RunEvent::Ended { ending, .. } => {
                items.push((HistoryItem::UnfinishedRun { input: None, ending: ending.clone() }, origin));
            }
            RunEvent::Steered { .. }
            | RunEvent::Message(MessageEvent::Completed { .. })
            | RunEvent::Step(_)
            | RunEvent::Tool(ToolEvent::Progressed { .. })
            | RunEvent::Question(QuestionEvent::Asked(_))
            | RunEvent::Subagent(_)
            | RunEvent::ErrorRaised { .. } => {}
        }
    }

    fn decode(row: &Row, snapshot: &SessionSnapshot) -> Result<SessionSnapshot, RowError> {
        decode_snapshot(snapshot.seq, snapshot.event.clone(), &row.body)
    }

    #[test]
    fn a_snapshot_with_every_part_is_decoded_as_it_was_encoded() {
        let snapshot = snapshot_of(&samples::all());
        assert_eq!(decode(&encode_snapshot(&snapshot), &snapshot).unwrap(), snapshot);
    }

    /// Existing databases contain this form. Another form needs another version, so that it is not read as this one.
    #[test]
    fn the_stored_form_is_pinned() {
        let encoded = encode_snapshot(&snapshot_of(&samples::all()));
        assert_eq!(
            encoded,
            Row { version: 1, body: include_str!("golden_snapshot.txt").trim_end().to_owned() }
        );
    }

    proptest! {
        #[test]
        fn every_snapshot_is_decoded_as_it_was_encoded(
            events in proptest::collection::vec(samples::any_event(), 0..40)
        ) {
            let snapshot = snapshot_of(&events);
            prop_assert_eq!(decode(&encode_snapshot(&snapshot), &snapshot).unwrap(), snapshot);
        }

        #[test]
        fn no_text_makes_the_decoder_panic(text in ".{0,64}") {
            let _ = decode_snapshot(Seq(1), EventId::parse("e").unwrap(), &text);
        }
    }
}
