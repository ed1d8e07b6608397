//! The method `command.execute`: the slash commands that people type.

use parlor_vocab::{FrontendReply, FrontendRequest, SessionRefusal};
use serde_json::json;
use serde_json::value::RawValue;

use super::MAX_TURNS;
use super::chat::{Kind, Prompt, SummaryTrigger, Work};
use super::code::{self, FrameError};
use super::history::DEFAULT_PAGE;
use super::machine::{LoafMachine, answer_error};
use super::params::Params;
use super::pending::{ChatPurpose, ChatQuery, Pending, ReplyTo};
use super::state::State;
use super::turn::StopReason;

/// The commands and their descriptions.
const COMMANDS: [(&str, &str); 13] = [
    ("/auth", "show who is logged in"),
    ("/onboarding", "show whether the first steps were done"),
    ("/forgeteverything", "forget keys, logins and choices, and clear this session"),
    ("/model", "show the model in use and those there are"),
    ("/limits", "show the limits of the providers"),
    ("/history", "list saved chats, or go on with one: /history last, /history <id>"),
    ("/compress", "put a summary in the place of the conversation"),
    ("/skills", "list skills"),
    ("/tools", "list tools"),
    ("/clear", "begin a new conversation in this session"),
    ("/quit", "end the server"),
    ("/help", "list commands"),
    ("/exit", "end the server"),
];

impl LoafMachine {
    pub(super) fn execute(
        &mut self,
        reply_to: &ReplyTo,
        params: Option<&RawValue>,
    ) -> Result<(), FrameError> {
        let params = Params::required("command.execute", params)?;
        let (id, command) = (params.text("session_id")?, params.text("raw_command")?);
        self.chat(&id)?;
        if !command.starts_with('/') {
            self.out.send_result(reply_to, json!({"handled": false}));
            return Ok(());
        }
        let reply_to = &ReplyTo { is_command_output: true, ..reply_to.clone() };
        let (word, rest) = command.split_once(char::is_whitespace).unwrap_or((&command, ""));
        let (word, rest) = (word.to_lowercase(), rest.trim());
        match word.as_str() {
            "/auth" => self.request_credentials(reply_to),
            "/onboarding" => {
                self.out.send_result(reply_to, json!({"completed": self.state.preferences.setup_done}))
            }
            "/model" => self.request_models(reply_to, None),
            "/limits" => self.send_limits(reply_to)?,
            "/history" => self.execute_history(reply_to, &id, rest)?,
            "/clear" => {
                self.clear_chat(&id);
                self.out.send_result(reply_to, json!({"cleared": true}));
                self.start_next_turn(&id);
            }
            "/compress" => self.execute_compress(reply_to, &id)?,
            "/skills" => self.request_skills(reply_to),
            "/tools" => self.send_tools(reply_to),
            "/help" => {
                let commands = COMMANDS.map(|(name, what)| json!({"name": name, "description": what}));
                self.out.send_result(reply_to, json!({"commands": commands}));
            }
            "/forgeteverything" => {
                self.out.submit(FrontendRequest::ForgetAll, Pending::Forget(reply_to.clone(), id))
            }
            "/quit" | "/exit" => {
                self.begin_shutdown("quit_command");
                self.out.send_result(reply_to, json!({"shutting_down": true}));
                self.out.close();
            }
            other if self.state.agent_has_command(other) => {
                return self.start_agent_command(&reply_to.id, &id, command);
            }
            other => self.out.send_result(reply_to, json!({"error": format!("unknown command: {other}")})),
        }
        Ok(())
    }

    /// Starts a turn with a command of the selected agent. The answer has no `output`, because clients print it.
    fn start_agent_command(
        &mut self,
        reply_to: &str,
        session: &str,
        command: String,
    ) -> Result<(), FrameError> {
        let active_turns = self.active_turns();
        let (turn, at) = (self.out.new_id(), self.out.now());
        if self.chat(session)?.is_pending() {
            return Err(code::busy());
        }
        if active_turns >= MAX_TURNS {
            return Err(code::too_many_turns());
        }
        let prompt = Prompt { turn: turn.clone(), text: command, images: Vec::new(), at };
        self.start_turn(session, prompt, None);
        let reply_to = ReplyTo { id: reply_to.into(), is_command_output: false };
        self.out.send_result(&reply_to, json!({"handled": true, "turn_id": turn}));
        Ok(())
    }

    fn execute_history(&mut self, reply_to: &ReplyTo, session: &str, rest: &str) -> Result<(), FrameError> {
        let query = match rest.to_lowercase().as_str() {
            "" | "list" | "all" => {
                self.request_chats(reply_to, 0, DEFAULT_PAGE);
                return Ok(());
            }
            "last" => ChatQuery::Last,
            _ => ChatQuery::Id(rest.to_owned()),
        };
        if self.chat(session)?.is_pending() {
            return Err(code::busy_for_resume());
        }
        self.request_chat(reply_to, ChatPurpose::Resume(query, session.to_owned()));
        Ok(())
    }

    fn execute_compress(&mut self, reply_to: &ReplyTo, session: &str) -> Result<(), FrameError> {
        if self.state.selected_model().is_none() {
            return Err(code::no_model_to_compress());
        }
        match &self.chat(session)?.work {
            Work::Idle => self.start_compression(reply_to.clone(), session, SummaryTrigger::Command),
            Work::Summary(_) => return Err(code::already_compressing()),
            Work::Turn(turn) if matches!(turn.stop_reason, Some(StopReason::Summary(_))) => {
                return Err(code::already_compressing());
            }
            // It is not this client's to stop for a summary.
            Work::Turn(turn) if turn.is_of_other_client => return Err(code::busy()),
            Work::Turn(_) => self.stop_turn(session, StopReason::Summary(reply_to.clone())),
        }
        Ok(())
    }

    pub(super) fn on_forgotten(
        &mut self,
        reply_to: &ReplyTo,
        id: &str,
        answer: Result<FrontendReply, SessionRefusal>,
    ) {
        if !matches!(answer, Ok(FrontendReply::Done)) {
            return self.out.send_error(&reply_to.id, &answer_error(answer));
        }
        self.state.preferences = State::default_preferences();
        self.state.credentials = parlor_vocab::Credentials::default();
        self.state.select_available_model();
        self.refresh_models();
        self.clear_chat(id);
        if let Some(chat) = self.chats.get_mut(id) {
            chat.queue.clear();
            chat.append(&mut self.out, Kind::System, code::FORGOTTEN, &[]);
        }
        self.send_state_changed("forgeteverything", None);
        self.out.send_result(reply_to, json!({"cleared": true}));
    }
}
