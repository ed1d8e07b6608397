//! From a prompt to a turn: its skills and images are found, then the engine is asked.

use parlor_vocab::{
    AgentChoice, FileError, FrontendReply, FrontendRequest, Media, NamedFile, NewSession, RegistryReply,
    RegistryRequest, Seq, SessionCommand, SessionId, SessionRefusal, UserInput, WatchFrom as Seat, WhenBusy,
};

use super::chat::{Kind, Prompt, SummaryFor, Work};
use super::image::{self, Image};
use super::machine::{LoafMachine, flaw_of};
use super::pending::{Pending, Place, To, TurnStep};
use super::turn::{Stopping, Turn};
use super::{MAX_IMAGE_BYTES, MAX_IMAGES, code, mention};

/// The door's name in lists of sessions.
const DOOR: &str = "loaf";

impl LoafMachine {
    /// Begins a turn in a session that has nothing to do.
    pub(super) fn start(&mut self, chat: &str, prompt: Prompt, to: Option<To>) {
        let provider = self.state.provider().to_owned();
        let Some(chat) = self.chats.get_mut(chat) else { return };
        let Prompt { turn, text, images, .. } = prompt;
        let place = Place { chat: chat.id.clone(), turn: turn.clone() };
        chat.status(&mut self.out, "preparing...", Some(&turn));
        let may_mention = mention::may_mention(&text);
        chat.work = Work::Turn(Box::new(Turn::new(turn, to, text, images, provider)));
        if may_mention {
            self.out.ask(FrontendRequest::ListSkills, Pending::Turn(place, TurnStep::Skills));
        } else {
            self.find_images(&place);
        }
    }

    /// Begins the next turn of a session, if one waits.
    pub(super) fn start_next(&mut self, chat: &str) {
        let is_closing = self.is_closing;
        let waiting = self.chats.get_mut(chat).filter(|chat| !chat.is_pending() && !is_closing);
        if let Some(prompt) = waiting.and_then(|chat| chat.queue.pop_front()) {
            self.start(chat, prompt, None);
        }
    }

    fn turn_at(&mut self, place: &Place) -> Option<&mut Turn> {
        self.chats.get_mut(&place.chat)?.turn_of(&place.turn)
    }

    /// Goes on with a turn that has not begun.
    pub(super) fn on_turn_step(
        &mut self,
        place: &Place,
        step: TurnStep,
        answer: Result<FrontendReply, SessionRefusal>,
    ) {
        if self.turn_at(place).is_none() {
            return self.on_late_step(place, step, &answer);
        }
        match (step, answer) {
            (TurnStep::Skills, answer) => {
                if let Ok(FrontendReply::Skills(skills)) = answer {
                    self.note_skills(&skills);
                    self.announce(place, |text| mention::applied(text, &skills.skills));
                }
                self.find_images(place);
            }
            (TurnStep::Files, Ok(FrontendReply::Files(files))) => self.take_images(place, files),
            (TurnStep::Media, Ok(FrontendReply::Registry(RegistryReply::Stored(media)))) => {
                self.submit(place, media)
            }
            (TurnStep::Send, Ok(FrontendReply::Registry(RegistryReply::Session(_)))) => {
                if let Some(chat) = self.chats.get_mut(&place.chat)
                    && let Work::Turn(turn) = &mut chat.work
                {
                    turn.accept(&place.chat, &mut self.out);
                }
            }
            (TurnStep::Create | TurnStep::Watch | TurnStep::Choose, Ok(_)) => {}
            (_, answer) => {
                let why = flaw_of(answer);
                self.give_up(place, why.message(), why.message());
            }
        }
    }

    fn announce(&mut self, place: &Place, names: impl FnOnce(&str) -> Vec<String>) {
        let Some(turn) = self.turn_at(place) else { return };
        let names = names(&turn.text);
        if let Some(chat) = self.chats.get_mut(&place.chat).filter(|_| !names.is_empty()) {
            chat.append(&mut self.out, Kind::System, &code::skills_applied(&names), &[]);
        }
    }

    fn find_images(&mut self, place: &Place) {
        let server = &self.state.server;
        let (folder, home) = (server.folder.clone(), server.user_home.clone());
        let Some(turn) = self.turn_at(place) else { return };
        if turn.wanted.len() > MAX_IMAGES {
            return self.refuse_image(place, &code::too_many_images());
        }
        let paths: Vec<_> =
            turn.wanted.iter().filter_map(|image| image.file(&folder, home.as_deref())).collect();
        if paths.is_empty() {
            return self.take_images(place, Vec::new());
        }
        let command = FrontendRequest::ReadFiles { paths, max_bytes: MAX_IMAGE_BYTES };
        self.out.ask(command, Pending::Turn(place.clone(), TurnStep::Files));
    }

    /// Judges the images, now that their files were read.
    fn take_images(&mut self, place: &Place, files: Vec<Result<NamedFile, FileError>>) {
        let now = self.out.now();
        let Some(turn) = self.turn_at(place) else { return };
        let wanted = std::mem::take(&mut turn.wanted);
        let mut files = files.into_iter();
        let mut taken: Vec<(Image, Vec<u8>)> = Vec::new();
        for image in &wanted {
            let judged = match image.file("".as_ref(), None) {
                None => image.decoded(now.0),
                Some(_) => image.read(files.next().unwrap_or(Err(FileError::Unreadable))),
            };
            match judged {
                Ok(image) => taken.push(image),
                Err(why) => return self.refuse_image(place, &why),
            }
        }
        turn.text = image::labelled(&turn.text, taken.len());
        let file = |(image, bytes): (Image, Vec<u8>)| (NamedFile { name: image.file_name(), bytes }, image);
        let (files, images): (Vec<NamedFile>, Vec<Image>) = taken.into_iter().map(file).unzip();
        turn.images = images;
        if files.is_empty() {
            return self.submit(place, Vec::new());
        }
        let command = FrontendRequest::Registry(RegistryRequest::StoreMedia(files));
        self.out.ask(command, Pending::Turn(place.clone(), TurnStep::Media));
    }

    fn refuse_image(&mut self, place: &Place, why: &str) {
        self.give_up(place, why, &code::inference_error(why));
    }

    /// Asks the engine for the run. All questions are put at once; they are carried out in order, and the
    /// first that is turned down ends the attempt.
    fn submit(&mut self, place: &Place, media: Vec<Media>) {
        let Some(choice) = self.state.choice() else {
            return self.give_up(place, code::NO_MODEL, code::NO_MODEL);
        };
        let Some(chat) = self.chats.get_mut(&place.chat) else { return };
        let at_work = chat
            .saved
            .as_ref()
            .is_some_and(|saved| self.running.contains_key(saved) || self.dropped.contains_key(saved));
        if at_work {
            return self.give_up(place, code::CHAT_AT_WORK, code::CHAT_AT_WORK);
        }
        let (session, is_new) = match &chat.saved {
            Some(saved) => (saved.clone(), false),
            None => (SessionId::parse(&self.out.id()).expect("a short text"), true),
        };
        let (seen, chosen, title) = (chat.seen, chat.chosen.replace(choice.clone()), chat.title.clone());
        let Some(turn) = chat.turn_of(&place.turn) else { return };
        turn.session = Some((session.clone(), is_new));
        let key = Some(turn.id.clone());
        let input = UserInput { text: turn.text.clone(), media, key, ..UserInput::default() };
        self.running.insert(session.clone(), place.clone());
        let mut ask = |step, command| {
            self.out.ask(FrontendRequest::Registry(command), Pending::Turn(place.clone(), step));
        };
        if is_new {
            let new_session = Box::new(new_session(title, choice.clone(), &self.state.server.folder));
            ask(TurnStep::Create, RegistryRequest::Create { id: Some(session.clone()), new_session });
        }
        let after = Seat::At(if is_new { Seq::START } else { seen });
        ask(TurnStep::Watch, RegistryRequest::Watch { session: session.clone(), after });
        if !is_new && chosen.as_ref() != Some(&choice) {
            let command = RegistryRequest::Session(session.clone(), SessionCommand::Choose(choice));
            ask(TurnStep::Choose, command);
        }
        let send = SessionCommand::Send { input, when_busy: WhenBusy::Enqueue };
        ask(TurnStep::Send, RegistryRequest::Session(session, send));
    }

    /// The turn cannot begin.
    fn give_up(&mut self, place: &Place, why: &str, line: &str) {
        let Some(chat) = self.chats.get_mut(&place.chat) else { return };
        let Work::Turn(mut turn) = std::mem::take(&mut chat.work) else { return };
        turn.not_begun(chat, &mut self.out, &self.state, why, line);
        turn.accept(&place.chat, &mut self.out);
        if let Some((session, is_new)) = turn.session {
            // What was chosen may not have come to the engine.
            chat.chosen = None;
            self.stop_watching(&session);
            if is_new {
                let command = FrontendRequest::Registry(RegistryRequest::Delete(session));
                self.out.ask(command, Pending::Nothing);
            }
        }
        match turn.stopping {
            Some(Stopping::ForSummary(to)) => self.compress(to, &place.chat, SummaryFor::Command),
            Some(Stopping::ByUser) | None => self.start_next(&place.chat),
        }
    }
}

fn new_session(title: Option<String>, choice: AgentChoice, folder: &std::path::Path) -> NewSession {
    let (door, folder) = (DOOR.to_owned(), folder.to_owned());
    NewSession { title, door, folder, choice, system: None, forked_from: None }
}
