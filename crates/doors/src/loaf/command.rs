//! `command.execute`: what people type after a slash.

use parlor_vocab::{FrontendReply, FrontendRequest, SessionRefusal};
use serde_json::json;
use serde_json::value::RawValue;

use super::chat::{Kind, SummaryFor, Work};
use super::code::{self, FrameError};
use super::history::DEFAULT_PAGE;
use super::machine::{LoafMachine, flaw_of};
use super::params::Params;
use super::pending::{ChatFor, ChatQuery, Pending, To};
use super::state::State;
use super::turn::Stopping;

/// The commands, with what they do.
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
    pub(super) fn execute(&mut self, to: &To, params: Option<&RawValue>) -> Result<(), FrameError> {
        let params = Params::needed("command.execute", params)?;
        let (id, command) = (params.text("session_id")?, params.text("raw_command")?);
        self.chat(&id)?;
        if !command.starts_with('/') {
            self.out.answer(to, json!({"handled": false}));
            return Ok(());
        }
        let to = &To { is_output: true, ..to.clone() };
        let (word, rest) = command.split_once(char::is_whitespace).unwrap_or((&command, ""));
        let (word, rest) = (word.to_lowercase(), rest.trim());
        match word.as_str() {
            "/auth" => self.ask_logins(to),
            "/onboarding" => self.out.answer(to, json!({"completed": self.state.kept.setup_done})),
            "/model" => self.ask_models(to, None),
            "/limits" => self.tell_limits(to)?,
            "/history" => self.execute_history(to, &id, rest)?,
            "/clear" => {
                self.forget_chat(&id);
                self.out.answer(to, json!({"cleared": true}));
                self.start_next(&id);
            }
            "/compress" => self.execute_compress(to, &id)?,
            "/skills" => self.ask_skills(to),
            "/tools" => self.tell_tools(to),
            "/help" => {
                let commands = COMMANDS.map(|(name, what)| json!({"name": name, "description": what}));
                self.out.answer(to, json!({"commands": commands}));
            }
            "/forgeteverything" => self.out.ask(FrontendRequest::ForgetAll, Pending::Forget(to.clone(), id)),
            "/quit" | "/exit" => {
                self.begin_to_end("quit_command");
                self.out.answer(to, json!({"shutting_down": true}));
                self.out.close();
            }
            other => self.out.answer(to, json!({"error": format!("unknown command: {other}")})),
        }
        Ok(())
    }

    fn execute_history(&mut self, to: &To, session: &str, rest: &str) -> Result<(), FrameError> {
        let sought = match rest.to_lowercase().as_str() {
            "" | "list" | "all" => {
                self.ask_chats(to, 0, DEFAULT_PAGE);
                return Ok(());
            }
            "last" => ChatQuery::Last,
            _ => ChatQuery::Id(rest.to_owned()),
        };
        if self.chat(session)?.is_pending() {
            return Err(code::busy_for_resume());
        }
        self.seek(to, ChatFor::Resume(sought, session.to_owned()));
        Ok(())
    }

    fn execute_compress(&mut self, to: &To, session: &str) -> Result<(), FrameError> {
        if self.state.offer().is_none() {
            return Err(code::no_model_to_compress());
        }
        match &self.chat(session)?.work {
            Work::Idle => self.compress(to.clone(), session, SummaryFor::Command),
            Work::Summary(_) => return Err(code::already_compressing()),
            Work::Turn(turn) if matches!(turn.stopping, Some(Stopping::ForSummary(_))) => {
                return Err(code::already_compressing());
            }
            Work::Turn(_) => self.stop_turn(session, Stopping::ForSummary(to.clone())),
        }
        Ok(())
    }

    pub(super) fn on_forgotten(&mut self, to: &To, id: &str, answer: Result<FrontendReply, SessionRefusal>) {
        if !matches!(answer, Ok(FrontendReply::Done)) {
            return self.out.refuse(&to.id, &flaw_of(answer));
        }
        self.state.kept = State::nothing_kept();
        self.state.logins = parlor_vocab::Credentials::default();
        self.state.fall_back();
        self.refresh_models();
        self.forget_chat(id);
        if let Some(chat) = self.chats.get_mut(id) {
            chat.queue.clear();
            chat.append(&mut self.out, Kind::System, code::FORGOTTEN, &[]);
        }
        self.changed("forgeteverything", None);
        self.out.answer(to, json!({"cleared": true}));
    }
}
