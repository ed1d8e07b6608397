//! The stored form of the events of a session.

use parlor_vocab::{MessageId, NewSession, QueuedInput, RunId, SessionEvent};
use serde::{Deserialize, Serialize};

use super::parts::{ChoiceRow, FolderRow, ForkRow, InputRow, MessageRow, Text, optional_text, text};
use super::question::ModeRow;
use super::run::RunRow;
use super::{Decoder, RowError};

/// Rare and large variants are boxed: rows are moved several times, and most are small.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum EventRow<'a> {
    #[serde(borrow)]
    Created(Box<NewSessionRow<'a>>),
    Renamed {
        title: Text<'a>,
    },
    Chosen(Box<ChoiceRow<'a>>),
    ModeChosen {
        mode: ModeRow,
    },
    Queued {
        run: Text<'a>,
        input: Box<InputRow<'a>>,
    },
    Unqueued {
        runs: Vec<Text<'a>>,
    },
    Cleared,
    Compacted {
        summary: Box<MessageRow<'a>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kept_from: Option<Text<'a>>,
    },
    MessageAdded(Box<MessageRow<'a>>),
    Run {
        run: Text<'a>,
        sequence: u64,
        event: RunRow<'a>,
    },
}

impl EventRow<'_> {
    pub(super) fn into_event(self, decoder: &mut Decoder) -> Result<SessionEvent, RowError> {
        Ok(match self {
            Self::Created(new_session) => SessionEvent::Created(new_session.into_new_session()?),
            Self::Renamed { title } => SessionEvent::Renamed { title: title.into_owned() },
            Self::Chosen(choice) => SessionEvent::AgentChosen(choice.into_choice()?),
            Self::ModeChosen { mode } => SessionEvent::ModeChosen { mode: mode.into_mode() },
            Self::Queued { run, input } => {
                SessionEvent::Queued(QueuedInput { run: RunId::parse(&run)?, input: input.into_input()? })
            }
            Self::Unqueued { runs } => {
                let runs: Result<_, _> = runs.iter().map(|run| RunId::parse(run)).collect();
                SessionEvent::Unqueued { runs: runs? }
            }
            Self::Cleared => SessionEvent::Cleared,
            Self::Compacted { summary, kept_from } => {
                let kept_from = kept_from.map(|id| MessageId::parse(&id)).transpose()?;
                SessionEvent::Compacted { summary: summary.into_message()?, kept_from }
            }
            Self::MessageAdded(message) => SessionEvent::MessageAdded(message.into_message()?),
            Self::Run { run, sequence, event } => {
                SessionEvent::Run { run: decoder.run(&run)?, sequence, event: event.into_event()? }
            }
        })
    }
}

impl<'a> From<&'a SessionEvent> for EventRow<'a> {
    fn from(event: &'a SessionEvent) -> Self {
        match event {
            SessionEvent::Created(new_session) => Self::Created(Box::new(new_session.into())),
            SessionEvent::Renamed { title } => Self::Renamed { title: text(title) },
            SessionEvent::AgentChosen(choice) => Self::Chosen(Box::new(choice.into())),
            SessionEvent::ModeChosen { mode } => Self::ModeChosen { mode: (*mode).into() },
            SessionEvent::Queued(QueuedInput { run, input }) => {
                Self::Queued { run: text(run.as_str()), input: Box::new(input.into()) }
            }
            SessionEvent::Unqueued { runs } => {
                Self::Unqueued { runs: runs.iter().map(|run| text(run.as_str())).collect() }
            }
            SessionEvent::Cleared => Self::Cleared,
            SessionEvent::Compacted { summary, kept_from } => Self::Compacted {
                summary: Box::new(summary.into()),
                kept_from: kept_from.as_ref().map(|id| text(id.as_str())),
            },
            SessionEvent::MessageAdded(message) => Self::MessageAdded(Box::new(message.into())),
            SessionEvent::Run { run, sequence, event } => {
                Self::Run { run: text(run.as_str()), sequence: *sequence, event: event.into() }
            }
        }
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct NewSessionRow<'a> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(borrow)]
    title: Option<Text<'a>>,
    door: Text<'a>,
    folder: FolderRow<'a>,
    #[serde(default, skip_serializing_if = "ChoiceRow::is_empty")]
    choice: ChoiceRow<'a>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    system: Option<Text<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    forked_from: Option<ForkRow<'a>>,
}

impl NewSessionRow<'_> {
    pub(super) fn into_new_session(self) -> Result<NewSession, RowError> {
        Ok(NewSession {
            title: self.title.map(Text::into_owned),
            door: self.door.into_owned(),
            folder: self.folder.into_path()?,
            choice: self.choice.into_choice()?,
            system: self.system.map(Text::into_owned),
            forked_from: self.forked_from.map(ForkRow::into_fork).transpose()?,
        })
    }
}

impl<'a> From<&'a NewSession> for NewSessionRow<'a> {
    fn from(new_session: &'a NewSession) -> Self {
        Self {
            title: optional_text(&new_session.title),
            door: text(&new_session.door),
            folder: new_session.folder.as_path().into(),
            choice: (&new_session.choice).into(),
            system: optional_text(&new_session.system),
            forked_from: new_session.forked_from.as_ref().map(ForkRow::from),
        }
    }
}
