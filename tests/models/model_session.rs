//! One session of a model agent in this process, for tests that attach files or look at each request.
#![expect(clippy::unwrap_used, reason = "test helpers panic on failure, as the tests do")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parlor_engine::{Agents, MediaStore, SessionDeps, Sessions};
use parlor_log::{MemoryLog, SystemClock, TimeOrderedIds};
use parlor_model::provider::{Connection, FixedKey, Key, ProviderKind, Routing};
use parlor_model::{Model, ModelAgent};
use parlor_tools::{ShellTool, Toolbox};
use parlor_vocab::{
    AgentChoice, AgentId, Failure, MessageEvent, NamedFile, NewSession, RunEnding, RunEvent, Seq,
    SessionCommand, SessionEvent, SessionId, SessionReply, SessionUpdate, ToolEvent, UserInput, WhenBusy,
};

use crate::api_format::ApiFormat;

/// A session whose agent uses a model at some URL.
pub(crate) struct ModelSession {
    sessions: Sessions,
    id: SessionId,
    /// The working folder; the state folder is beside it.
    folder: PathBuf,
    parent: tempfile::TempDir,
}

impl ModelSession {
    pub(crate) async fn start(kind: ProviderKind, url: &str) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), kind, url).await
    }

    /// A new session with a model at another URL, and the same folders.
    pub(crate) async fn restart(self, kind: ProviderKind, url: &str) -> Self {
        self.sessions.close().await;
        Self::start_in(self.parent, kind, url).await
    }

    async fn start_in(parent: tempfile::TempDir, kind: ProviderKind, url: &str) -> Self {
        let key = Arc::new(FixedKey(Ok(Some(Key::new("k")))));
        let connection = Connection::new(kind, Some(&format!("{url}/v1")), key, Routing::default());
        let model = Model::new("mock", "claude-sonnet-5", Arc::new(connection));
        let (folder, state) = (parent.path().join("work"), parent.path().join("state"));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::create_dir_all(&state).unwrap();
        let clock = Arc::new(SystemClock);
        let sessions = Sessions::new(SessionDeps {
            log: Arc::new(MemoryLog::new(Arc::clone(&clock) as _)),
            agents: Agents::new(
                AgentId::parse("main").unwrap(),
                Arc::new(ModelAgent::new("Model agent", model)),
            ),
            media: MediaStore::open(&state).unwrap(),
            tools: Toolbox::standard(ShellTool::default()),
            env: Arc::new([]),
            clock: Arc::clone(&clock) as _,
            ids: Arc::new(TimeOrderedIds::new(clock)),
        })
        .with_state_folder(&state);
        let new_session = NewSession {
            title: None,
            door: "test".to_owned(),
            folder: folder.clone(),
            choice: AgentChoice::default(),
            system: None,
            forked_from: None,
        };
        let id = sessions.create(None, new_session).await.unwrap();
        Self { sessions, id, folder, parent }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Sends a message with files, and returns the last message of the answer, or why the run failed.
    pub(crate) async fn send(&self, text: &str, files: Vec<NamedFile>) -> Result<String, Failure> {
        let media = self.sessions.store_media(files).await.unwrap();
        let input = UserInput { text: text.to_owned(), media, ..UserInput::default() };
        let head = self.sessions.view(&self.id).await.unwrap().head();
        let mut watcher = self.sessions.watch(&self.id, head).await;
        let command = SessionCommand::Send { input, when_busy: WhenBusy::Refuse };
        self.sessions.execute(&self.id, command).await.unwrap();
        let mut answer = String::new();
        loop {
            let SessionUpdate::Entry(entry) = watcher.next().await.unwrap() else { continue };
            let SessionEvent::Run { event, .. } = &entry.event else { continue };
            if let RunEvent::Message(MessageEvent::Completed { text, .. }) = event {
                answer.clone_from(text);
            }
            if let RunEvent::Ended { ending, .. } = event {
                return match ending {
                    RunEnding::Failed(failure) => Err(failure.clone()),
                    RunEnding::Completed { .. } | RunEnding::Stopped { .. } => Ok(answer),
                };
            }
        }
    }

    /// Has the agent summarize the whole conversation; returns the summary.
    pub(crate) async fn compact(&self) -> String {
        let reply = self.sessions.execute(&self.id, SessionCommand::Compact { keep: 0 }).await.unwrap();
        let SessionReply::Compacted(summary) = reply else { panic!("{reply:?}") };
        summary.text
    }

    /// Another session that begins with all messages of this one.
    pub(crate) async fn fork(self) -> Self {
        let id = self.sessions.fork(None, &self.id, None).await.unwrap();
        Self { id, ..self }
    }

    /// The results of all tool calls so far, in their order.
    pub(crate) async fn tool_results(&self) -> Vec<Result<String, Failure>> {
        let mut watcher = self.sessions.watch(&self.id, Seq::START).await;
        let head = self.sessions.view(&self.id).await.unwrap().head();
        let mut results = Vec::new();
        loop {
            let SessionUpdate::Entry(entry) = watcher.next().await.unwrap() else { continue };
            if let SessionEvent::Run { event: RunEvent::Tool(tool), .. } = &entry.event {
                match tool {
                    ToolEvent::Completed { output, .. } => results.push(Ok(output.clone())),
                    ToolEvent::Failed { failure, .. } => results.push(Err(failure.clone())),
                    ToolEvent::Called { .. } | ToolEvent::Progressed { .. } => {}
                }
            }
            if entry.seq == head {
                return results;
            }
        }
    }

    pub(crate) async fn close(self) {
        self.sessions.close().await;
    }
}

/// The kind of provider that speaks this format.
pub(crate) fn kind_of(api: ApiFormat) -> ProviderKind {
    match api {
        ApiFormat::Chat => ProviderKind::OpenAi,
        ApiFormat::Responses => ProviderKind::OpenAiResponses,
        ApiFormat::Anthropic => ProviderKind::Anthropic,
    }
}

/// A stream with this answer, for every kind of provider.
pub(crate) fn answer(kind: ProviderKind, text: &str) -> String {
    let of = |api: ApiFormat| api.text(text) + &api.end();
    match kind {
        ProviderKind::OpenAi | ProviderKind::OpenRouter => of(ApiFormat::Chat),
        ProviderKind::OpenAiResponses => of(ApiFormat::Responses),
        ProviderKind::Anthropic => of(ApiFormat::Anthropic),
        ProviderKind::Gemini => {
            let content = serde_json::json!({"role": "model", "parts": [{"text": text}]});
            let candidates = serde_json::json!([{"content": content, "finishReason": "STOP"}]);
            format!("data: {}\n\n", serde_json::json!({"candidates": candidates}))
        }
        ProviderKind::Ollama => {
            let message = serde_json::json!({"role": "assistant", "content": text});
            format!("{}\n", serde_json::json!({"message": message, "done": true, "done_reason": "stop"}))
        }
    }
}
