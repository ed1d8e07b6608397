//! Routes requests of the client to their methods, and answers and events of the backend to their handlers.

use parlor_vocab::{FrontendEvent, FrontendReply, LoginMethod, SessionRefusal};
use serde_json::json;
use serde_json::value::RawValue;

use super::code::{self, FrameError};
use super::decode::Request;
use super::machine::LoafMachine;
use super::pending::{Pending, ReplyTo};

impl LoafMachine {
    pub(super) fn on_request(&mut self, request: &Request<'_>) {
        let reply_to = ReplyTo { id: request.id.into(), is_command_output: false };
        if let Err(error) = self.dispatch_method(&reply_to, &request.method, request.params) {
            self.out.send_error(&reply_to.id, &error);
        }
    }

    fn dispatch_method(
        &mut self,
        reply_to: &ReplyTo,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<(), FrameError> {
        match method {
            "system.ping" => self.ping(reply_to),
            "rpc.handshake" => self.handshake(reply_to, params)?,
            "system.shutdown" => self.shutdown(reply_to, params)?,
            "state.get" => self.send_state(reply_to),
            "debug.set" => self.set_debug(reply_to, params)?,
            "auth.status" => self.request_credentials(reply_to),
            "auth.connect.openai" => self.connect_openai(reply_to, params)?,
            "auth.connect.antigravity" => {
                self.start_login(reply_to, "antigravity", LoginMethod::Browser, None)?
            }
            "auth.set.openrouter_key" => self.set_router_key(reply_to, params)?,
            "auth.set.exa_key" => self.set_exa_key(reply_to, params)?,
            "onboarding.status" => {
                self.out.send_result(reply_to, json!({"completed": self.state.preferences.setup_done}))
            }
            "onboarding.complete" => self.complete_onboarding(reply_to),
            "model.list" => self.list_models(reply_to, params)?,
            "model.select" => self.select_model(reply_to, params)?,
            "model.openrouter.providers" => self.list_routes(reply_to, params)?,
            "limits.get" => self.send_limits(reply_to)?,
            "skills.list" => self.request_skills(reply_to),
            "tools.list" => self.send_tools(reply_to),
            "session.create" => self.create_session(reply_to, params)?,
            "session.get" => self.get_session(reply_to, params)?,
            "session.send" => self.send(reply_to, params)?,
            "session.steer" => self.steer(reply_to, params)?,
            "session.interrupt" => self.interrupt(reply_to, params)?,
            "session.queue.list" => self.list_queue(reply_to, params)?,
            "session.queue.clear" => self.clear_queue(reply_to, params)?,
            "history.list" => self.list_history(reply_to, params)?,
            "history.get" => self.get_history(reply_to, params)?,
            "history.clear_session" => self.clear_session(reply_to, params)?,
            "command.execute" => self.execute(reply_to, params)?,
            "session.answer" => self.answer_question(reply_to, params)?,
            "session.list" => self.list_sessions(reply_to),
            "session.close" => self.close_session(reply_to, params)?,
            "session.rename" => self.rename_session(reply_to, params)?,
            "auth.cancel" => self.cancel_login(reply_to, params)?,
            "auth.logout" => self.log_out(reply_to, params)?,
            "events.replay" => self.replay_events(reply_to, params)?,
            other => return Err(code::unknown_method(other)),
        }
        Ok(())
    }

    pub(super) fn on_answer(&mut self, pending: Pending, answer: Result<FrontendReply, SessionRefusal>) {
        match pending {
            Pending::Ignored => {}
            Pending::IdleWatch(session) => self.on_idle_watch(&session, &answer),
            Pending::ClosingCheck(chat) => self.on_closing_check(&chat, &answer),
            Pending::Turn(turn_key, step) => self.on_turn_step(&turn_key, step, answer),
            Pending::Answer(reply_to, id) => self.on_question_answered(&reply_to, &id, answer),
            Pending::Steer(reply_to, turn_key) => self.on_steered(&reply_to, &turn_key, answer),
            Pending::Summary(turn_key) => self.on_summary(&turn_key, answer),
            Pending::Login(reply_to, provider) => self.on_logged_in(&reply_to, provider, answer),
            Pending::SavePreferences(reply_to, then) => self.on_preferences_saved(&reply_to, then, answer),
            Pending::Models(reply_to, filter) => self.on_models(&reply_to, filter.as_deref(), answer),
            Pending::ModelsForSelection(reply_to, selection) => {
                self.on_models_for_selection(&reply_to, selection, answer)
            }
            Pending::RefreshModels => self.on_refreshed(answer),
            Pending::Routes(reply_to, model) => self.on_routes(&reply_to, &model, answer),
            Pending::Credentials(reply_to) => self.on_credentials(&reply_to, answer),
            Pending::SetKey(reply_to, service) => self.on_key_set(&reply_to, service, answer),
            Pending::Cancel(reply_to) => self.on_cancelled(&reply_to, answer),
            Pending::Logout(reply_to, provider) => self.on_logged_out(&reply_to, provider, answer),
            Pending::Forget(reply_to, chat) => self.on_forgotten(&reply_to, &chat, answer),
            Pending::Chats(reply_to, cursor, limit) => self.on_chats(&reply_to, cursor, limit, answer),
            Pending::Chat(reply_to, reason) => self.on_chat(&reply_to, reason, answer),
            Pending::ChatMedia(reply_to, reason, chat, ids) => {
                self.on_chat_media(&reply_to, reason, *chat, ids, answer)
            }
            Pending::Skills(reply_to) => self.on_skills(&reply_to, answer),
            Pending::Rename(reply_to, chat) => self.on_renamed(&reply_to, &chat, answer),
        }
    }

    pub(super) fn on_event(&mut self, event: &FrontendEvent) {
        match event {
            FrontendEvent::Registry(event) => self.on_registry_event(event),
            FrontendEvent::Login { provider, step } => self.on_login_step(provider, step),
            FrontendEvent::Ending(signal) => self.on_signal(*signal),
        }
    }
}
