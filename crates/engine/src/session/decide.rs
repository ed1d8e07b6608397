//! Decides what a command changes: the events to append and the effects to start afterwards.

use parlor_vocab::{
    AgentId, HistoryItem, IdSource, MAX_KEY_BYTES, Message, MessageId, QuestionId, QuestionOutcome,
    QueuedInput, Role, RunEvent, RunId, SessionCommand, SessionEvent, SessionRefusal, SessionReply,
    StopCause, UserInput, WhenBusy,
};

use super::Session;
use crate::visible::{is_blank, visible};

/// How many inputs may wait in the queue of one session.
pub const MAX_QUEUED_INPUTS: usize = 16;

/// The length in characters of a title that is taken from the first input of an unnamed session.
pub const TITLE_CHARS: usize = 60;

/// The longest title, in characters. Titles are shown on one line.
pub const MAX_TITLE_CHARS: usize = 200;

/// The reason of a stop when the client gives none.
const DEFAULT_STOP_REASON: &str = "Stopped by user.";

/// The consequences of an accepted command.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Events to append to the log, before any effect starts.
    pub events: Vec<SessionEvent>,
    /// Effects to start once the events are durable.
    pub effects: Vec<Effect>,
    /// The reply to the client.
    pub reply: SessionReply,
}

/// The agent and the model that answer, after defaults were applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedChoice {
    /// The agent.
    pub agent: AgentId,
    /// The model with which the agent answers, by its configured name or the provider's id; `None` means its own.
    pub model: Option<String>,
    /// The provider's id of that model; `None` if the agent uses no model.
    pub model_id: Option<String>,
    /// The agent of the session, if it is not configured any more and `agent` answers instead.
    pub missing_agent: Option<AgentId>,
}

/// Work outside of the state machine, which the session's actor carries out.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Start a run driver for this run, whose `Started` event is recorded.
    StartRun(RunId),
    /// Go on with a run that waited for an answer when its process died.
    ResumeRun(RunId),
    /// Tell the driver that waits for this question how it was settled.
    Settle(QuestionId, QuestionOutcome),
    /// Pass this text of the user to the driver of the run.
    Steer(RunId, String),
    /// Stop the driver of the run.
    Cancel(RunId, StopCause),
    /// Let the agent summarize the history except its last `keep` messages. [`Session::compacted`] records the
    /// result.
    Summarize {
        /// How many of the last messages stay as they are.
        keep: usize,
    },
}

impl Session {
    /// Decides what `command` changes, without changing anything. `resolved` answers if the command starts a run; the
    /// caller chooses it, because it knows which agents are configured.
    pub fn decide(
        &self,
        command: SessionCommand,
        resolved: &ResolvedChoice,
        ids: &dyn IdSource,
    ) -> Result<Decision, SessionRefusal> {
        match command {
            SessionCommand::Send { input, when_busy } => self.send(input, when_busy, resolved, ids),
            SessionCommand::Stop { run, reason } => self.stop(run, reason),
            SessionCommand::ClearQueue => Ok(self.unqueue(|_| true)),
            SessionCommand::Unqueue(run) => Ok(self.unqueue(|queued| *queued == run)),
            SessionCommand::ClearHistory => self.clear_history(),
            SessionCommand::Compact { keep } => self.compact(keep),
            SessionCommand::Rename { title } => {
                Ok(done(SessionEvent::Renamed { title: checked_title(&title)? }))
            }
            SessionCommand::ChooseAgent(choice) => Ok(done(SessionEvent::AgentChosen(choice))),
            SessionCommand::ChooseMode(mode) => Ok(done(SessionEvent::ModeChosen { mode })),
            SessionCommand::AnswerQuestion { question, answer, by } => self.answer(question, answer, by),
        }
    }

    fn send(
        &self,
        input: UserInput,
        when_busy: WhenBusy,
        resolved: &ResolvedChoice,
        ids: &dyn IdSource,
    ) -> Result<Decision, SessionRefusal> {
        if input.key.as_ref().is_some_and(|key| key.len() > MAX_KEY_BYTES) {
            return Err(SessionRefusal::KeyTooLong { limit: MAX_KEY_BYTES });
        }
        if let Some(run) = self.run_with_key_of(&input) {
            return Ok(Decision {
                events: vec![],
                effects: vec![],
                reply: SessionReply::Started(run.clone()),
            });
        }
        match (&self.active, when_busy) {
            (None, WhenBusy::Steer) => Err(SessionRefusal::NoActiveRun),
            (None, WhenBusy::Refuse | WhenBusy::Enqueue) => {
                let run = RunId::generate(ids.next());
                let title = if self.title.is_none() { title_of(&input.text) } else { None };
                let renamed = title.map(|title| SessionEvent::Renamed { title });
                let event = self.started_event(run.clone(), input, resolved, ids);
                let events = renamed.into_iter().chain([event]).collect();
                let effects = vec![Effect::StartRun(run.clone())];
                Ok(Decision { events, effects, reply: SessionReply::Started(run) })
            }
            (Some(active), WhenBusy::Refuse) => Err(SessionRefusal::Busy { active: active.clone() }),
            (Some(_), WhenBusy::Enqueue) => self.enqueue(input, ids),
            (Some(active), WhenBusy::Steer) => {
                let message = MessageId::generate(ids.next());
                let text = input.text.clone();
                let event = RunEvent::Steered { input, message };
                Ok(Decision {
                    events: self.numbered(active, vec![event]),
                    effects: vec![Effect::Steer(active.clone(), text)],
                    reply: SessionReply::Steered(active.clone()),
                })
            }
        }
    }

    /// The event that starts a run for `input`.
    pub(super) fn started_event(
        &self,
        run: RunId,
        input: UserInput,
        resolved: &ResolvedChoice,
        ids: &dyn IdSource,
    ) -> SessionEvent {
        let ResolvedChoice { agent, model, model_id, missing_agent } = resolved.clone();
        let model = model_id.or(model);
        let missing_agent = missing_agent.filter(|missing| self.reported_missing.as_ref() != Some(missing));
        let message = MessageId::generate(ids.next());
        let event = RunEvent::Started { parent: None, agent, model, missing_agent, input, message };
        SessionEvent::Run { run, sequence: 1, event }
    }

    fn enqueue(&self, input: UserInput, ids: &dyn IdSource) -> Result<Decision, SessionRefusal> {
        if self.queue.len() >= MAX_QUEUED_INPUTS {
            return Err(SessionRefusal::QueueFull { limit: MAX_QUEUED_INPUTS });
        }
        let run = RunId::generate(ids.next());
        let waiting = self.queue.len() + 1;
        let events = vec![SessionEvent::Queued(QueuedInput { run: run.clone(), input })];
        Ok(Decision { events, effects: vec![], reply: SessionReply::Queued { run, waiting } })
    }

    fn stop(&self, requested: Option<RunId>, reason: Option<String>) -> Result<Decision, SessionRefusal> {
        let active = self.active.clone().ok_or(SessionRefusal::NoActiveRun)?;
        if let Some(asked) = requested.filter(|run| *run != active) {
            return Err(SessionRefusal::WrongRun { asked, active });
        }
        let reason = reason.as_deref().map(str::trim).filter(|reason| !reason.is_empty());
        let reason = reason.unwrap_or(DEFAULT_STOP_REASON).to_owned();
        // No event yet: the run stays active until its driver has stopped, and the end is recorded then.
        let effects = vec![Effect::Cancel(active.clone(), StopCause::Client { reason })];
        Ok(Decision { events: vec![], effects, reply: SessionReply::Stopping(active) })
    }

    /// Drops the queued inputs whose runs `is_dropped` selects.
    fn unqueue(&self, is_dropped: impl Fn(&RunId) -> bool) -> Decision {
        let queued = self.queue.iter().filter(|queued| is_dropped(&queued.run));
        let queued: Vec<QueuedInput> = queued.cloned().collect();
        let runs: Vec<RunId> = queued.iter().map(|queued| queued.run.clone()).collect();
        let events = if runs.is_empty() { vec![] } else { vec![SessionEvent::Unqueued { runs }] };
        Decision { events, effects: vec![], reply: SessionReply::Unqueued(queued) }
    }

    fn clear_history(&self) -> Result<Decision, SessionRefusal> {
        match &self.active {
            Some(active) => Err(SessionRefusal::Busy { active: active.clone() }),
            None => Ok(done(SessionEvent::Cleared)),
        }
    }

    fn compact(&self, keep: usize) -> Result<Decision, SessionRefusal> {
        if let Some(active) = &self.active {
            return Err(SessionRefusal::Busy { active: active.clone() });
        }
        if self.items_before_last(keep).is_empty() {
            return Err(SessionRefusal::NotCompacted { reason: "there are no older messages".to_owned() });
        }
        Ok(Decision { events: vec![], effects: vec![Effect::Summarize { keep }], reply: SessionReply::Done })
    }

    /// The history items before the last `keep` messages.
    pub fn items_before_last(&self, keep: usize) -> &[HistoryItem] {
        let kept = self.first_kept(keep).map(|(position, _)| position);
        let history = self.history.items();
        history.get(..kept.unwrap_or(history.len())).unwrap_or_default()
    }

    fn first_kept(&self, keep: usize) -> Option<(usize, &MessageId)> {
        let messages = self.history.items().iter().enumerate().filter_map(|(position, item)| match item {
            HistoryItem::Message(message) => Some((position, &message.id)),
            HistoryItem::ToolUse(_) | HistoryItem::UnfinishedRun { .. } => None,
        });
        messages.rev().take(keep).last()
    }

    /// Decides what follows when the agent has summarized the history except its last `keep` messages.
    pub fn compacted(&self, summary: String, keep: usize, ids: &dyn IdSource) -> Decision {
        let id = MessageId::generate(ids.next());
        let summary = Message { id, role: Role::User, text: summary, media: Vec::new() };
        let kept_from = self.first_kept(keep).map(|(_, id)| id.clone());
        let event = SessionEvent::Compacted { summary: summary.clone(), kept_from };
        Decision { events: vec![event], effects: vec![], reply: SessionReply::Compacted(summary) }
    }

    /// The events when a run replaces the history before the message `kept_from` with `summary`. None if there is no
    /// such message, or nothing before it.
    pub fn compacted_before(
        &self,
        kept_from: &MessageId,
        summary: String,
        ids: &dyn IdSource,
    ) -> Vec<SessionEvent> {
        let exists = self.history.items().iter().skip(1).any(|item| match item {
            HistoryItem::Message(message) => message.id == *kept_from,
            HistoryItem::ToolUse(_) | HistoryItem::UnfinishedRun { .. } => false,
        });
        if !exists {
            return Vec::new();
        }
        let id = MessageId::generate(ids.next());
        let summary = Message { id, role: Role::User, text: summary, media: Vec::new() };
        vec![SessionEvent::Compacted { summary, kept_from: Some(kept_from.clone()) }]
    }

    /// Gives each of `events` its sequence number in `run`.
    pub(super) fn numbered(&self, run: &RunId, events: Vec<RunEvent>) -> Vec<SessionEvent> {
        let last = self.open.get(run).map_or(0, |open| open.sequence);
        let numbers = last + 1..;
        let with_number = numbers.zip(events);
        with_number.map(|(sequence, event)| SessionEvent::Run { run: run.clone(), sequence, event }).collect()
    }
}

/// The title without invisible characters. Refused if nothing is left, or too much.
fn checked_title(title: &str) -> Result<String, SessionRefusal> {
    let title = visible(title);
    if is_blank(&title) {
        return Err(SessionRefusal::TitleBlank);
    }
    if title.chars().nth(MAX_TITLE_CHARS).is_some() {
        return Err(SessionRefusal::TitleTooLong { limit: MAX_TITLE_CHARS });
    }
    Ok(title)
}

/// The title of a new session, cut to [`MAX_TITLE_CHARS`]. `None` if it has no visible character.
pub(crate) fn first_title(title: &str) -> Option<String> {
    let title: String = visible(title).chars().take(MAX_TITLE_CHARS).collect();
    (!is_blank(&title)).then_some(title)
}

/// The first line of `text` with visible characters, cut to [`TITLE_CHARS`].
fn title_of(text: &str) -> Option<String> {
    let line = text.lines().find(|line| !is_blank(line))?.replace('\t', " ");
    let line = visible(&line);
    let line = line.trim();
    let mut title: String = line.chars().take(TITLE_CHARS).collect();
    if title.len() < line.len() {
        title.pop();
        title.push('…');
    }
    Some(title)
}

fn done(event: SessionEvent) -> Decision {
    Decision { events: vec![event], effects: vec![], reply: SessionReply::Done }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_title_is_visible_and_short() {
        assert_eq!(checked_title("\u{202e}a\u{200b} b").as_deref(), Ok("a b"));
        for blank in ["", " ", "\0\u{202e}", "\u{200d}"] {
            assert_eq!(checked_title(blank), Err(SessionRefusal::TitleBlank), "{blank:?}");
            assert_eq!(first_title(blank), None, "{blank:?}");
        }
        let longest = "\u{e4}".repeat(MAX_TITLE_CHARS);
        assert_eq!(checked_title(&longest).as_ref(), Ok(&longest));
        let too_long = format!("{longest}x");
        let limit = MAX_TITLE_CHARS;
        assert_eq!(checked_title(&too_long), Err(SessionRefusal::TitleTooLong { limit }));
        assert_eq!(first_title(&too_long), Some(longest));
    }

    #[test]
    fn a_title_is_the_first_visible_line_cut_short() {
        assert_eq!(title_of(" \n  hello there \nmore"), Some("hello there".to_owned()));
        assert_eq!(title_of(" \n\t\u{200b}"), None);
        assert_eq!(title_of("\u{202e}\none\ttwo\u{202e}\u{7}"), Some("one two".to_owned()));
        let long = title_of(&"\u{e4}".repeat(100)).unwrap();
        assert_eq!(long.chars().count(), TITLE_CHARS);
        assert!(long.ends_with('…'));
        assert_eq!(title_of(&"x".repeat(TITLE_CHARS)).unwrap(), "x".repeat(TITLE_CHARS));
    }
}
