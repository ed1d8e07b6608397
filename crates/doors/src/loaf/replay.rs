//! A stored session as lines, without a client: the events that a client of a chat with these turns would have got.
//!
//! The machine gets each turn as if a client had sent its prompt. What the log does not have is not replayed: answers to
//! requests, the id of the chat (it is that of the stored session here), and the note about the skills of a prompt.

use std::collections::HashMap;
use std::time::Instant;

use parlor_vocab::{
    AgentChoice, Entry, FrontendReply, FrontendRequest, Media, MediaId, RegistryEvent, RegistryReply,
    RegistryRequest, Role, RunEvent, SessionCommand, SessionEvent, SessionId, SessionReply, SessionUpdate,
};

use super::chat::{Chat, ModelHistory, ModelMessage, Prompt};
use super::image::Image;
use super::machine::LoafMachine;
use super::{ServerParams, pending::TurnKey};
use crate::{Input, Machine, Output};

/// Makes lines of the updates of a stored session. Pass them in order, from the first event on.
pub struct LoafReplay {
    machine: LoafMachine,
    session: SessionId,
    /// The agent, model and reasoning of the session so far.
    choice: AgentChoice,
}

impl LoafReplay {
    /// Begins before the first event. The clock of `params` has to show the time of each event while it is replayed.
    pub fn new(params: ServerParams, session: SessionId) -> Self {
        let mut machine = LoafMachine::new(params);
        let id = session.to_string();
        let mut chat = Chat::new(id.clone(), machine.out.now());
        chat.saved_session = Some(session.clone());
        machine.chats.insert(id.clone(), chat);
        machine.order.push(id);
        Self { machine, session, choice: AgentChoice::default() }
    }

    /// The lines of the next update. `contents` are the files that it names.
    pub fn lines(
        &mut self,
        now: Instant,
        update: &SessionUpdate,
        contents: &HashMap<MediaId, Vec<u8>>,
    ) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        match update {
            SessionUpdate::Entry(entry) => match &entry.event {
                SessionEvent::Created(created) => self.choose(&created.choice),
                SessionEvent::AgentChosen(choice) => self.choose(choice),
                SessionEvent::Cleared => self.chat().history = ModelHistory::default(),
                SessionEvent::MessageAdded(message) => match message.role {
                    Role::User => {
                        let images = images(&message.media, contents);
                        self.chat().history.add(ModelMessage::user(message.text.as_str(), images));
                    }
                    Role::Assistant => {
                        self.chat().history.add(ModelMessage::assistant(message.text.as_str()))
                    }
                    Role::System => {}
                },
                SessionEvent::Run { event: RunEvent::Started { parent: None, .. }, .. } => {
                    self.start_turn(now, entry, contents, &mut lines)
                }
                SessionEvent::Run { .. } | SessionEvent::Compacted { .. } => {
                    self.handle(now, update.clone(), &mut lines)
                }
                SessionEvent::Renamed { .. }
                | SessionEvent::ModeChosen { .. }
                | SessionEvent::Queued(_)
                | SessionEvent::Unqueued { .. } => {}
            },
            SessionUpdate::Delta { .. } => self.handle(now, update.clone(), &mut lines),
        }
        lines
    }

    /// Starts the turn whose run this entry starts.
    fn start_turn(
        &mut self,
        now: Instant,
        entry: &Entry,
        contents: &HashMap<MediaId, Vec<u8>>,
        lines: &mut Vec<Vec<u8>>,
    ) {
        let mut entry = entry.clone();
        let SessionEvent::Run { run, event: RunEvent::Started { input, .. }, .. } = &mut entry.event else {
            return;
        };
        // The door names a turn by the key of its input. Other doors need not set a key.
        let turn = input.key.get_or_insert_with(|| run.to_string()).clone();
        let (text, media) = (input.text.clone(), std::mem::take(&mut input.media));
        // The process that a shutdown ended is not the one that began the next turn.
        self.machine.is_closing = false;
        let prompt = Prompt { turn: turn.clone(), text, images: Vec::new(), at: entry.at };
        let chat = self.session.to_string();
        self.machine.start_turn(&chat, prompt, None);
        self.drain(now, lines);
        if let Some(turn) = self.chat().turn_with_id(&turn) {
            turn.images = images(&media, contents);
        }
        self.machine.running_turns.insert(self.session.clone(), TurnKey { chat, turn });
        self.handle(now, SessionUpdate::Entry(entry.into()), lines);
    }

    fn handle(&mut self, now: Instant, update: SessionUpdate, lines: &mut Vec<Vec<u8>>) {
        self.machine.on_registry_event(&RegistryEvent { session: self.session.clone(), update });
        self.drain(now, lines);
    }

    /// Takes the lines of the machine, and answers its requests as a backend does that accepts everything.
    fn drain(&mut self, now: Instant, lines: &mut Vec<Vec<u8>>) {
        while let Some(output) = self.machine.poll() {
            match output {
                Output::Send(line) => lines.push(line),
                Output::SendShared(line) => lines.push(line.into()),
                Output::Request(ticket, request) => {
                    let is_prompt = matches!(
                        request,
                        FrontendRequest::Registry(RegistryRequest::Session(_, SessionCommand::Send { .. }))
                    );
                    let reply = match is_prompt {
                        true => FrontendReply::Registry(RegistryReply::Session(SessionReply::Done)),
                        false => FrontendReply::Done,
                    };
                    self.machine.handle(now, Input::Answer(ticket, Ok(reply)));
                }
                Output::WakeAt(_) | Output::Close => {}
            }
        }
    }

    /// Selects what the session has chosen, if it still exists.
    fn choose(&mut self, choice: &AgentChoice) {
        let AgentChoice { agent, model, reasoning } = choice.clone();
        // The model of one agent is not that of another.
        let model = if agent.is_some() { model } else { model.or(self.choice.model.take()) };
        let old = &self.choice;
        let (agent, reasoning) = (agent.or(old.agent.clone()), reasoning.or(old.reasoning));
        self.choice = AgentChoice { agent, model, reasoning };
        let state = &mut self.machine.state;
        let (model, provider, level) = state.describe_choice(&self.choice);
        if state.find_model(&provider, &model).is_some() {
            (state.preferences.model, state.preferences.provider) = (model, provider);
        }
        if self.choice.reasoning.is_some() {
            state.preferences.reasoning = level.to_owned();
        }
    }

    fn chat(&mut self) -> &mut Chat {
        self.machine.chats.get_mut(self.session.as_str()).expect("the chat is never removed")
    }
}

fn images(media: &[Media], contents: &HashMap<MediaId, Vec<u8>>) -> Vec<Image> {
    let image =
        |media: &Media| Some(Image::new(media.name.clone(), media.mime.clone(), contents.get(&media.id)?));
    media.iter().filter_map(image).collect()
}
