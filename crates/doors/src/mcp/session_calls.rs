//! The calls of the tools for sessions, from their arguments to their results.

use std::path::PathBuf;
use std::time::Duration;

use parlor_vocab::{
    AgentChoice, AgentId, ListedSession, NewSession, RegistryReply, RegistryRequest, RunId, RunReport,
    RunState, Sender, Seq, SessionCommand, SessionId, SessionRefusal, SessionReply, ToolClientReply,
    ToolClientRequest, UserInput, WhenBusy,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::items::item;
use super::machine::{McpMachine, RequestKey};
use super::session_tools::usage;
use super::{
    DEFAULT_SESSION_WAIT, DOOR, MAX_SESSION_WAIT, SESSION_LIST_PAGE, SESSION_READ_BYTES, code, encode,
};

/// What the backend is asked for a call, and what is to be done with its answer.
#[derive(Debug)]
pub(super) enum Step {
    /// A call of one of parlor's own tools.
    Call,
    /// Checks the folder of a new session, before it is created.
    CheckFolder(Box<StartArguments>, PathBuf),
    /// Creates a session, before it gets this message.
    Create(Option<String>),
    /// Sends the message to a session.
    Send(SessionId),
    /// Waits for a run. The text tells what the call did differently from what was asked.
    Wait(SessionId, Option<String>),
    /// Reads on after this event.
    Read(SessionId, Seq),
    List,
    Stop(SessionId),
}

impl Step {
    /// Whether the backend answers soon.
    pub(super) fn is_quick(&self) -> bool {
        !matches!(self, Self::Call | Self::Wait(..))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StartArguments {
    message: Option<String>,
    agent: Option<String>,
    model: Option<String>,
    folder: Option<String>,
    title: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SendArguments {
    session_id: String,
    message: String,
    #[serde(default)]
    steer: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WaitArguments {
    session_id: String,
    run_id: Option<String>,
    timeout_s: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadArguments {
    session_id: String,
    #[serde(default)]
    after: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListArguments {
    after: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StopArguments {
    session_id: String,
    reason: Option<String>,
}

/// The result of a call: a value, or a text that tells a model how to mend the call.
type Outcome = Result<Value, String>;

impl McpMachine {
    /// Begins a call of a tool for sessions.
    pub(super) fn call_session_tool(&mut self, key: RequestKey, name: &str, arguments: &str) {
        let begun = match name {
            "session_start" => decode(arguments).map(|arguments| self.start(key, arguments)),
            "session_send" => decode(arguments).and_then(|arguments| self.send_to_session(key, arguments)),
            "session_wait" => decode(arguments).and_then(|arguments| self.wait(key, arguments)),
            "session_read" => decode(arguments).and_then(|arguments| self.read(key, arguments)),
            "session_stop" => decode(arguments).and_then(|arguments| self.stop(key, arguments)),
            _ => decode(arguments).map(|ListArguments { after }| {
                let list = ToolClientRequest::ListSessions { after, limit: SESSION_LIST_PAGE };
                self.submit(key, list, Step::List);
            }),
        };
        if let Err(message) = begun {
            let message = format!("{message}; {name} takes {}", usage(name));
            self.answer(key, encode::failed_call(&message));
        }
    }

    fn start(&mut self, key: RequestKey, arguments: StartArguments) {
        let Some(folder) = &arguments.folder else {
            let folder = self.params.folder.clone();
            return self.create(key, arguments, folder);
        };
        let folder = self.params.folder.join(folder);
        self.submit(
            key,
            ToolClientRequest::CheckFolder(folder.clone()),
            Step::CheckFolder(Box::new(arguments), folder),
        );
    }

    fn create(&mut self, key: RequestKey, arguments: StartArguments, folder: PathBuf) {
        let StartArguments { message, agent, model, title, .. } = arguments;
        let agent = match agent.as_deref().map(AgentId::parse).transpose() {
            Ok(agent) => agent,
            Err(error) => return self.answer(key, encode::failed_call(&format!("`agent`: {error}"))),
        };
        let new_session = NewSession {
            title,
            door: DOOR.to_owned(),
            folder,
            choice: AgentChoice { agent, model, reasoning: None },
            system: None,
            forked_from: None,
        };
        let create = RegistryRequest::Create { id: None, new_session: Box::new(new_session) };
        self.submit(key, ToolClientRequest::Registry(create), Step::Create(message));
    }

    fn send_to_session(&mut self, key: RequestKey, arguments: SendArguments) -> Result<(), String> {
        let session = session(&arguments.session_id)?;
        let when_busy = if arguments.steer { WhenBusy::Steer } else { WhenBusy::Enqueue };
        self.send_message(key, session, arguments.message, when_busy);
        Ok(())
    }

    fn send_message(&mut self, key: RequestKey, session: SessionId, text: String, when_busy: WhenBusy) {
        let client = self.open.get(&key).and_then(|open| open.client.clone());
        let by = Some(Sender { client, ..Sender::at(DOOR) });
        let input = UserInput { text, key: Some(self.new_input_key()), by, ..UserInput::default() };
        let send = RegistryRequest::Session(session.clone(), SessionCommand::Send { input, when_busy });
        self.submit(key, ToolClientRequest::Registry(send), Step::Send(session));
    }

    fn wait(&mut self, key: RequestKey, arguments: WaitArguments) -> Result<(), String> {
        let session = session(&arguments.session_id)?;
        let run = arguments.run_id.as_deref().map(RunId::parse).transpose();
        let run = run.map_err(|error| format!("`run_id`: {error}"))?;
        let asked = arguments.timeout_s.map_or(DEFAULT_SESSION_WAIT, Duration::from_secs);
        let limit = asked.min(MAX_SESSION_WAIT);
        let note = (asked > limit).then(|| {
            let max = limit.as_secs();
            format!("Waited for at most {max} seconds, which is the limit; call session_wait again.")
        });
        let await_run = ToolClientRequest::AwaitRun { session: session.clone(), run, limit };
        self.submit(key, await_run, Step::Wait(session, note));
        Ok(())
    }

    fn read(&mut self, key: RequestKey, arguments: ReadArguments) -> Result<(), String> {
        let (session, after) = (session(&arguments.session_id)?, Seq(arguments.after));
        let read =
            ToolClientRequest::ReadLog { session: session.clone(), after, max_bytes: SESSION_READ_BYTES };
        self.submit(key, read, Step::Read(session, after));
        Ok(())
    }

    fn stop(&mut self, key: RequestKey, arguments: StopArguments) -> Result<(), String> {
        let session = session(&arguments.session_id)?;
        let stop = SessionCommand::Stop { run: None, reason: arguments.reason };
        let stop = RegistryRequest::Session(session.clone(), stop);
        self.submit(key, ToolClientRequest::Registry(stop), Step::Stop(session));
        Ok(())
    }

    /// Goes on with a call after an answer of the backend.
    pub(super) fn on_step(
        &mut self,
        key: RequestKey,
        step: Step,
        answer: Result<ToolClientReply, SessionRefusal>,
    ) {
        let reply = match answer {
            Ok(reply) => reply,
            Err(refusal) => return self.answer(key, encode::failed_call(&refusal_text(&refusal))),
        };
        let outcome = match (step, reply) {
            (Step::Call, ToolClientReply::Called(Ok(output))) => {
                return self.answer(key, encode::tool_output(&output));
            }
            (Step::Call, ToolClientReply::Called(Err(failure))) => Err(failure.message),
            (Step::CheckFolder(arguments, folder), ToolClientReply::Done) => {
                return self.create(key, *arguments, folder);
            }
            (Step::CheckFolder(..), ToolClientReply::UnusableFolder(reason)) => Err(reason),
            (Step::Create(message), ToolClientReply::Registry(RegistryReply::Created(session))) => {
                match message {
                    Some(message) => return self.send_message(key, session, message, WhenBusy::Enqueue),
                    None => Ok(json!({"session_id": session.as_str(), "status": "idle"})),
                }
            }
            (Step::Send(session), ToolClientReply::Registry(RegistryReply::Session(reply))) => {
                sent(&session, &reply)
            }
            (Step::Wait(session, note), ToolClientReply::Run(report)) => {
                waited(&session, report.map(|report| *report), note)
            }
            (Step::Read(session, after), ToolClientReply::Log { entries, has_more }) => {
                let next = entries.last().map_or(after, |entry| entry.seq);
                let items: Vec<Value> = entries.iter().filter_map(|entry| item(entry)).collect();
                Ok(json!({
                    "session_id": session.as_str(), "items": items, "next": next.0, "has_more": has_more,
                }))
            }
            (Step::List, ToolClientReply::Sessions { sessions, next }) => {
                let mut result = json!({"sessions": sessions.iter().map(listed).collect::<Vec<_>>()});
                if let Some(next) = next {
                    result["next"] = next.into();
                }
                Ok(result)
            }
            (Step::List, ToolClientReply::UnknownPage) => {
                Err("`after` must be the `next` of an earlier session_list".to_owned())
            }
            (
                Step::Stop(session),
                ToolClientReply::Registry(RegistryReply::Session(SessionReply::Stopping(run))),
            ) => Ok(json!({"session_id": session.as_str(), "run_id": run.as_str(), "status": "stopping"})),
            _ => Err(refusal_text(&SessionRefusal::Internal)),
        };
        self.answer(key, outcome.map_or_else(|message| encode::failed_call(&message), encode::structured));
    }
}

fn sent(session: &SessionId, reply: &SessionReply) -> Outcome {
    let (run, status) = match reply {
        SessionReply::Started(run) => (run, "running"),
        SessionReply::Queued { run, .. } => (run, "queued"),
        SessionReply::Steered(run) => (run, "steered"),
        SessionReply::Stopping(_)
        | SessionReply::Unqueued(_)
        | SessionReply::Compacted(_)
        | SessionReply::Done => return Err(refusal_text(&SessionRefusal::Internal)),
    };
    Ok(json!({"session_id": session.as_str(), "run_id": run.as_str(), "status": status}))
}

fn waited(session: &SessionId, report: Option<RunReport>, note: Option<String>) -> Outcome {
    let Some(RunReport { run, state, text }) = report else {
        return Err(format!("session {session} has no such run; session_send begins one"));
    };
    let (status, reason) = match state {
        RunState::Queued => ("queued", None),
        RunState::Running => ("running", None),
        RunState::Completed => ("completed", None),
        RunState::Failed(failure) => ("failed", Some(failure.message)),
        RunState::Stopped(reason) => ("stopped", Some(reason)),
    };
    let mut result =
        json!({"session_id": session.as_str(), "run_id": run.as_str(), "status": status, "text": text});
    if let Some(reason) = reason {
        result["reason"] = reason.into();
    }
    if let Some(note) = note {
        result["note"] = note.into();
    }
    Ok(result)
}

fn listed(session: &ListedSession) -> Value {
    let mut listed = json!({"session_id": session.id.as_str()});
    if let Some(title) = &session.title {
        listed["title"] = title.as_str().into();
    }
    listed["folder"] = session.folder.to_string_lossy().into();
    listed["updated"] = session.updated.rfc3339().into();
    listed
}

fn session(id: &str) -> Result<SessionId, String> {
    SessionId::parse(id).map_err(|error| format!("`session_id`: {error}"))
}

fn decode<T: DeserializeOwned>(arguments: &str) -> Result<T, String> {
    serde_json::from_str(arguments).map_err(|error| code::quoted(&error.to_string()))
}

fn refusal_text(refusal: &SessionRefusal) -> String {
    refusal.to_string()
}
