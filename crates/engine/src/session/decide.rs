//! What a command would change.

use parlor_vocab::{
    AgentChoice, AgentId, HistoryItem, IdSource, Message, MessageId, QueuedInput, Role, RunEvent, RunId,
    SessionCommand, SessionEvent, SessionRefusal, SessionReply, StopCause, UserInput, WhenBusy,
};

use super::Session;
use crate::visible::{is_blank, visible};

/// How many inputs may wait in one session.
pub const MAX_QUEUED_INPUTS: usize = 16;

/// A session that nobody named is called by the first words of what is said first: so many letters.
pub const TITLE_CHARS: usize = 60;

/// What is said when nobody gives a reason for a stop.
const DEFAULT_REASON: &str = "Stopped by user.";

/// What follows from an accepted command.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Appended first.
    pub events: Vec<SessionEvent>,
    /// Started only when the events are durable.
    pub effects: Vec<Effect>,
    /// What the asker is told.
    pub reply: SessionReply,
}

/// Something to be done in the world.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Let the agent perform this run, which has started.
    StartRun(RunId),
    /// Let the driver of this run hear this.
    Steer(RunId, String),
    /// Make the driver of this run stop, for this reason.
    Cancel(RunId, StopCause),
    /// Let the agent summarize the history but for this many of its last messages, then report
    /// [`Session::compacted`].
    Summarize {
        /// How many messages stay as they are.
        keep: usize,
    },
}

impl Session {
    /// What `command` would change. `agent` is the one that would answer; it is looked up by the
    /// caller, who knows what is configured.
    pub fn decide(
        &self,
        command: SessionCommand,
        agent: &AgentId,
        ids: &dyn IdSource,
    ) -> Result<Decision, SessionRefusal> {
        match command {
            SessionCommand::Send { input, when_busy } => self.send(input, when_busy, agent, ids),
            SessionCommand::Stop { run, reason } => self.stop(run, reason),
            SessionCommand::ClearQueue => Ok(self.clear_queue()),
            SessionCommand::ClearHistory => self.clear_history(),
            SessionCommand::Compact { keep } => self.compact_soon(keep),
            SessionCommand::Rename { title } => Ok(done(SessionEvent::Renamed { title: visible(&title) })),
            SessionCommand::Choose(choice) => Ok(done(SessionEvent::Chosen(choice))),
        }
    }

    fn send(
        &self,
        input: UserInput,
        when_busy: WhenBusy,
        agent: &AgentId,
        ids: &dyn IdSource,
    ) -> Result<Decision, SessionRefusal> {
        if let Some(run) = input.key.as_ref().and_then(|key| self.keys.get(key.as_str())) {
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
                let event = self.started(run.clone(), input, agent.clone(), ids);
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

    /// The event that makes `input` a run.
    pub(super) fn started(
        &self,
        run: RunId,
        input: UserInput,
        agent: AgentId,
        ids: &dyn IdSource,
    ) -> SessionEvent {
        let model = input.choice.model.clone().or_else(|| self.choice.model.clone());
        let message = MessageId::generate(ids.next());
        let event = RunEvent::Started { parent: None, agent, model, input, message };
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

    fn stop(&self, asked: Option<RunId>, reason: Option<String>) -> Result<Decision, SessionRefusal> {
        let active = self.active.clone().ok_or(SessionRefusal::NoActiveRun)?;
        if let Some(asked) = asked.filter(|asked| *asked != active) {
            return Err(SessionRefusal::WrongRun { asked, active });
        }
        let reason = reason.as_deref().map(str::trim).filter(|reason| !reason.is_empty());
        let reason = reason.unwrap_or(DEFAULT_REASON).to_owned();
        // Recorded when it has come about: until then the run is as active as before.
        let effects = vec![Effect::Cancel(active.clone(), StopCause::Client { reason })];
        Ok(Decision { events: vec![], effects, reply: SessionReply::Stopping(active) })
    }

    fn clear_queue(&self) -> Decision {
        let queued: Vec<QueuedInput> = self.queue.iter().cloned().collect();
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

    fn compact_soon(&self, keep: usize) -> Result<Decision, SessionRefusal> {
        if let Some(active) = &self.active {
            return Err(SessionRefusal::Busy { active: active.clone() });
        }
        if self.passages_before(keep).is_empty() {
            return Err(SessionRefusal::NotCompacted { reason: "there are no older messages".to_owned() });
        }
        Ok(Decision { events: vec![], effects: vec![Effect::Summarize { keep }], reply: SessionReply::Done })
    }

    /// The history without its last `keep` messages and what belongs to them.
    pub fn passages_before(&self, keep: usize) -> &[HistoryItem] {
        let kept = self.first_kept(keep).map(|(place, _)| place);
        let history = self.history.items();
        history.get(..kept.unwrap_or(history.len())).unwrap_or_default()
    }

    fn first_kept(&self, keep: usize) -> Option<(usize, &MessageId)> {
        let messages = self.history.items().iter().enumerate().filter_map(|(place, item)| match item {
            HistoryItem::Message(message) => Some((place, &message.id)),
            HistoryItem::ToolUse(_) | HistoryItem::BrokenOff(_) => None,
        });
        messages.rev().take(keep).last()
    }

    /// What follows when the history but for its last `keep` messages was summarized.
    pub fn compacted(&self, summary: String, keep: usize, ids: &dyn IdSource) -> Decision {
        let id = MessageId::generate(ids.next());
        let summary = Message { id, role: Role::User, text: summary, media: Vec::new() };
        let kept_from = self.first_kept(keep).map(|(_, id)| id.clone());
        let event = SessionEvent::Compacted { summary: summary.clone(), kept_from };
        Decision { events: vec![event], effects: vec![], reply: SessionReply::Compacted(summary) }
    }

    /// What follows when a run puts `summary` in the place of what was said before the message
    /// `kept_from`. Nothing if there is no such message, or nothing before it.
    pub fn forgotten(&self, kept_from: &MessageId, summary: String, ids: &dyn IdSource) -> Vec<SessionEvent> {
        let is_there = self.history.items().iter().skip(1).any(|item| match item {
            HistoryItem::Message(message) => message.id == *kept_from,
            HistoryItem::ToolUse(_) | HistoryItem::BrokenOff(_) => false,
        });
        if !is_there {
            return Vec::new();
        }
        let id = MessageId::generate(ids.next());
        let summary = Message { id, role: Role::User, text: summary, media: Vec::new() };
        vec![SessionEvent::Compacted { summary, kept_from: Some(kept_from.clone()) }]
    }

    /// The agent that is asked for, if anybody asked for one: for this input, else for the session.
    pub fn wanted_agent<'a>(&'a self, choice: &'a AgentChoice) -> Option<&'a AgentId> {
        choice.agent.as_ref().or(self.choice.agent.as_ref())
    }

    /// Gives each of `events` its number in `run`.
    pub(super) fn numbered(&self, run: &RunId, events: Vec<RunEvent>) -> Vec<SessionEvent> {
        let last = self.open.get(run).map_or(0, |open| open.sequence);
        let numbers = last + 1..;
        let with_number = numbers.zip(events);
        with_number.map(|(sequence, event)| SessionEvent::Run { run: run.clone(), sequence, event }).collect()
    }
}

/// The first words of `text`, if there are any.
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
    fn a_title_is_the_first_line_that_says_something_cut_short() {
        assert_eq!(title_of(" \n  hello there \nmore"), Some("hello there".to_owned()));
        assert_eq!(title_of(" \n\t\u{200b}"), None);
        assert_eq!(title_of("\u{202e}\none\ttwo\u{202e}\u{7}"), Some("one two".to_owned()));
        let long = title_of(&"\u{e4}".repeat(100)).unwrap();
        assert_eq!(long.chars().count(), TITLE_CHARS);
        assert!(long.ends_with('…'));
        assert_eq!(title_of(&"x".repeat(TITLE_CHARS)).unwrap(), "x".repeat(TITLE_CHARS));
    }
}
