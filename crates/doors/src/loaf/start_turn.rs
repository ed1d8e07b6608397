//! Starts a turn: looks up the skills and images of its prompt, then submits it to the engine.

use parlor_vocab::{
    AgentChoice, FileError, FrontendReply, FrontendRequest, Media, NamedFile, NewSession, RegistryReply,
    RegistryRequest, RunId, Seq, SessionCommand, SessionId, SessionRefusal, SessionReply, UserInput,
    WatchFrom, WhenBusy,
};

use super::chat::{Kind, Prompt, SummaryTrigger, Work};
use super::image::{self, Image};
use super::machine::{LoafMachine, answer_error};
use super::other_turns::MAX_WATCHES;
use super::pending::{Pending, ReplyTo, TurnKey, TurnStep};
use super::turn::{StopReason, Turn};
use super::{DOOR, MAX_IMAGE_BYTES, MAX_IMAGES, code, skill_mentions};

impl LoafMachine {
    /// Starts a turn in an idle session.
    pub(super) fn start_turn(&mut self, chat: &str, prompt: Prompt, reply_to: Option<ReplyTo>) {
        let provider = self.state.provider().to_owned();
        let Some(chat) = self.chats.get_mut(chat) else { return };
        let Prompt { turn, text, images, .. } = prompt;
        let turn_key = TurnKey { chat: chat.id.clone(), turn: turn.clone() };
        chat.set_status(&mut self.out, "preparing...", Some(&turn));
        let may_mention = skill_mentions::may_mention(&text);
        chat.work = Work::Turn(Box::new(Turn::new(turn, reply_to, text, images, provider)));
        if may_mention {
            self.out.submit(FrontendRequest::ListSkills, Pending::Turn(turn_key, TurnStep::Skills));
        } else {
            self.read_images(&turn_key);
        }
    }

    /// Starts the next prompt in the queue of an idle session, if there is one.
    pub(super) fn start_next_turn(&mut self, chat: &str) {
        let is_closing = self.is_closing;
        let waiting = self.chats.get_mut(chat).filter(|chat| !chat.is_pending() && !is_closing);
        if let Some(prompt) = waiting.and_then(|chat| chat.queue.pop_front()) {
            self.start_turn(chat, prompt, None);
        }
    }

    fn turn_mut(&mut self, turn_key: &TurnKey) -> Option<&mut Turn> {
        self.chats.get_mut(&turn_key.chat)?.turn_with_id(&turn_key.turn)
    }

    /// Handles the answer to a step of a turn whose run has not started.
    pub(super) fn on_turn_step(
        &mut self,
        turn_key: &TurnKey,
        step: TurnStep,
        answer: Result<FrontendReply, SessionRefusal>,
    ) {
        if self.turn_mut(turn_key).is_none() {
            return self.on_late_step(turn_key, step, &answer);
        }
        match (step, answer) {
            (TurnStep::Skills, answer) => {
                if let Ok(FrontendReply::Skills(skills)) = answer {
                    self.store_skills(&skills);
                    self.announce_skills(turn_key, |text| {
                        skill_mentions::mentioned_skills(text, &skills.skills)
                    });
                }
                self.read_images(turn_key);
            }
            (TurnStep::Files, Ok(FrontendReply::Files(files))) => self.accept_images(turn_key, files),
            (TurnStep::Media, Ok(FrontendReply::Registry(RegistryReply::Stored(media)))) => {
                self.submit_turn(turn_key, media)
            }
            (TurnStep::Send, Ok(FrontendReply::Registry(RegistryReply::Session(reply)))) => {
                self.on_turn_sent(turn_key, reply);
            }
            (TurnStep::Create | TurnStep::Watch | TurnStep::Choose, Ok(_)) => {}
            (_, answer) => {
                let reason = answer_error(answer);
                self.abandon_turn(turn_key, reason.message(), reason.message());
            }
        }
    }

    /// The session has accepted the prompt of a turn.
    fn on_turn_sent(&mut self, turn_key: &TurnKey, reply: SessionReply) {
        let Some(chat) = self.chats.get_mut(&turn_key.chat) else { return };
        let Work::Turn(turn) = &mut chat.work else { return };
        turn.accept(&turn_key.chat, &mut self.out);
        if let SessionReply::Queued { run, .. } = reply {
            self.on_turn_queued(turn_key, run);
        }
    }

    /// The prompt of a turn waits to start `run`. The reply and the log both say so, in any order.
    pub(super) fn on_turn_queued(&mut self, turn_key: &TurnKey, run: RunId) {
        let Some(turn) = self.turn_mut(turn_key).filter(|turn| turn.queued.is_none()) else { return };
        turn.queued = Some(run.clone());
        let session = turn.session.clone().map(|(session, _)| session);
        if let Some(session) = session.filter(|_| turn.run.is_none() && turn.stop_reason.is_some()) {
            self.submit_unqueue(&session, run);
        }
    }

    fn announce_skills(&mut self, turn_key: &TurnKey, names: impl FnOnce(&str) -> Vec<String>) {
        let Some(turn) = self.turn_mut(turn_key) else { return };
        let names = names(&turn.text);
        if let Some(chat) = self.chats.get_mut(&turn_key.chat).filter(|_| !names.is_empty()) {
            chat.append(&mut self.out, Kind::System, &code::skills_applied(&names), &[]);
        }
    }

    fn read_images(&mut self, turn_key: &TurnKey) {
        let params = &self.state.params;
        let (folder, home) = (params.folder.clone(), params.user_home.clone());
        let Some(turn) = self.turn_mut(turn_key) else { return };
        if turn.image_inputs.len() > MAX_IMAGES {
            return self.fail_image(turn_key, &code::too_many_images());
        }
        let paths: Vec<_> =
            turn.image_inputs.iter().filter_map(|image| image.file_path(&folder, home.as_deref())).collect();
        if paths.is_empty() {
            return self.accept_images(turn_key, Vec::new());
        }
        let request = FrontendRequest::ReadFiles { paths, max_bytes: MAX_IMAGE_BYTES };
        self.out.submit(request, Pending::Turn(turn_key.clone(), TurnStep::Files));
    }

    /// Checks the images after their files were read.
    fn accept_images(&mut self, turn_key: &TurnKey, files: Vec<Result<NamedFile, FileError>>) {
        let now = self.out.now();
        let Some(turn) = self.turn_mut(turn_key) else { return };
        let inputs = std::mem::take(&mut turn.image_inputs);
        let mut files = files.into_iter();
        let mut accepted: Vec<(Image, Vec<u8>)> = Vec::new();
        for image in &inputs {
            let checked = match image.file_path("".as_ref(), None) {
                None => image.decode_data_url(now.0),
                Some(_) => image.check_file(files.next().unwrap_or(Err(FileError::Unreadable))),
            };
            match checked {
                Ok(image) => accepted.push(image),
                Err(reason) => return self.fail_image(turn_key, &reason),
            }
        }
        turn.text = image::with_labels(&turn.text, accepted.len());
        let file = |(image, bytes): (Image, Vec<u8>)| (NamedFile { name: image.file_name(), bytes }, image);
        let (files, images): (Vec<NamedFile>, Vec<Image>) = accepted.into_iter().map(file).unzip();
        turn.images = images;
        if files.is_empty() {
            return self.submit_turn(turn_key, Vec::new());
        }
        let request = FrontendRequest::Registry(RegistryRequest::StoreMedia(files));
        self.out.submit(request, Pending::Turn(turn_key.clone(), TurnStep::Media));
    }

    fn fail_image(&mut self, turn_key: &TurnKey, reason: &str) {
        self.abandon_turn(turn_key, reason, &code::inference_error(reason));
    }

    /// Submits the turn to the engine. All requests are submitted at once; the engine carries them out in order, and
    /// the first refusal ends the attempt.
    fn submit_turn(&mut self, turn_key: &TurnKey, media: Vec<Media>) {
        let Some(choice) = self.state.agent_choice() else {
            return self.abandon_turn(turn_key, code::NO_MODEL, code::NO_MODEL);
        };
        let Some(chat) = self.chats.get_mut(&turn_key.chat) else { return };
        let is_busy = chat
            .saved_session
            .as_ref()
            .is_some_and(|saved| self.running_turns.contains_key(saved) || self.orphans.contains_key(saved));
        if is_busy {
            return self.abandon_turn(turn_key, code::CHAT_BUSY, code::CHAT_BUSY);
        }
        let (session, is_new) = match &chat.saved_session {
            Some(saved) => (saved.clone(), false),
            None => (SessionId::parse(&self.out.new_id()).expect("a short text"), true),
        };
        let (last_seq, old_choice, title) =
            (chat.last_seq, chat.agent_choice.replace(choice.clone()), chat.title.clone());
        let Some(turn) = chat.turn_with_id(&turn_key.turn) else { return };
        turn.session = Some((session.clone(), is_new));
        let key = Some(turn.id.clone());
        let by = Some(self.out.sender());
        let text = turn.text.clone();
        // A client without extensions does not know the frames of questions.
        let can_answer = self.out.extensions;
        let input = UserInput { text, media, key, by, can_answer, ..UserInput::default() };
        let is_watched = self.take_idle_watch(&session);
        self.running_turns.insert(session.clone(), turn_key.clone());
        self.make_room_for_watch(MAX_WATCHES);
        let mut submit = |step, request| {
            self.out.submit(FrontendRequest::Registry(request), Pending::Turn(turn_key.clone(), step));
        };
        if is_new {
            let new_session = Box::new(new_session(title, choice.clone(), &self.state.params.folder));
            submit(TurnStep::Create, RegistryRequest::Create { id: Some(session.clone()), new_session });
        }
        if !is_watched {
            let after = WatchFrom::At(if is_new { Seq::START } else { last_seq });
            submit(TurnStep::Watch, RegistryRequest::Watch { session: session.clone(), after, deltas: true });
        }
        if !is_new && old_choice.as_ref() != Some(&choice) {
            let request = RegistryRequest::Session(session.clone(), SessionCommand::ChooseAgent(choice));
            submit(TurnStep::Choose, request);
        }
        let send = SessionCommand::Send { input, when_busy: WhenBusy::Enqueue };
        submit(TurnStep::Send, RegistryRequest::Session(session, send));
    }

    /// Ends a turn that could not start.
    pub(super) fn abandon_turn(&mut self, turn_key: &TurnKey, reason: &str, line: &str) {
        let Some(chat) = self.chats.get_mut(&turn_key.chat) else { return };
        let Work::Turn(mut turn) = std::mem::take(&mut chat.work) else { return };
        turn.fail_before_start(chat, &mut self.out, &self.state, reason, line);
        turn.accept(&turn_key.chat, &mut self.out);
        if let Some((session, is_new)) = turn.session {
            // The engine may not have the new choice.
            chat.agent_choice = None;
            let last_seq = chat.last_seq;
            // A prompt waits in the queue behind the run of another client, who uses the session.
            let is_unused = is_new && turn.queued.is_none();
            if !is_unused {
                chat.saved_session = Some(session.clone());
            }
            self.unwatch(&session);
            if is_unused {
                let request = FrontendRequest::Registry(RegistryRequest::Delete(session));
                self.out.submit(request, Pending::Ignored);
            } else {
                self.watch_idle(&session, last_seq);
            }
        }
        match turn.stop_reason {
            Some(StopReason::Summary(reply_to)) => {
                self.start_compression(reply_to, &turn_key.chat, SummaryTrigger::Command)
            }
            Some(StopReason::User) | None => self.start_next_turn(&turn_key.chat),
        }
    }
}

fn new_session(title: Option<String>, choice: AgentChoice, folder: &std::path::Path) -> NewSession {
    let (door, folder) = (DOOR.to_owned(), folder.to_owned());
    NewSession { title, door, folder, choice, system: None, forked_from: None }
}
