//! The loaf door with sessions in memory. Preferences and keys are in memory too, and logins are not configured.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use parlor_doors::ToolDescription;
use parlor_doors::loaf::{LoafMachine, ServerParams};
use parlor_engine::OnDisconnect;
use parlor_frontend::{
    Accounts, FrontendBackend, LoginOptions, LoginProgressSender, SkillFolders, find_skills,
};
use parlor_log::{SystemClock, TimeOrderedIds};
use parlor_model::LocalAgent;
use parlor_testkit::Case;
use parlor_vocab::{
    AgentChoice, AgentId, CompletedLogin, Credentials, LoginFailure, ModelLists, ModelOption, Preferences,
    SecretText, SkillList,
};

use super::SessionsInMemory;

/// Sessions and accounts in memory, from which [`Loaf::serve`] makes a server.
pub(crate) struct Loaf {
    sessions: SessionsInMemory,
    accounts: MemoryAccounts,
    state: PathBuf,
}

impl Loaf {
    /// A server with the settings of `case`.
    pub(crate) fn for_case(case: &Case) -> Result<Self, String> {
        let sessions = SessionsInMemory::for_case(case)?;
        let accounts = MemoryAccounts::new(&sessions, case);
        Ok(Self { sessions, accounts, state: case.home.clone() })
    }

    /// The machine and the backend of the server.
    pub(crate) async fn serve(self) -> (LoafMachine, FrontendBackend) {
        let Self { sessions, accounts, state } = self;
        let clock = Arc::new(SystemClock);
        let tools = sessions.child.tools.iter().map(|tool| ToolDescription {
            name: tool.name.clone(),
            description: tool.description.clone(),
            schema: tool.schema.clone(),
        });
        let server = ServerParams {
            folder: accounts.folder.clone(),
            user_home: Some(accounts.folder.clone()),
            chats_path: state.join("parlor.db"),
            preferences: Preferences {
                model: String::new(),
                provider: String::new(),
                reasoning: String::new(),
                route: String::new(),
                setup_done: false,
            },
            models: accounts.models.clone(),
            credentials: Credentials::default(),
            skill_folders: accounts.skills().await.folders,
            skill_count: accounts.skills().await.skills.len(),
            agent_commands: HashMap::from([(
                AgentId::parse("local").expect("a short name"),
                LocalAgent::command_names().map(str::to_owned).collect(),
            )]),
            tools: tools.collect(),
            clock: Arc::clone(&clock) as _,
            ids: Arc::new(TimeOrderedIds::new(clock)),
        };
        (
            LoafMachine::new(server),
            FrontendBackend::new(sessions.sessions, Arc::new(accounts), OnDisconnect::Stop),
        )
    }
}

/// Accounts without logins.
pub(super) struct MemoryAccounts {
    /// The agents, the default first.
    pub(super) models: Vec<ModelOption>,
    folder: PathBuf,
    keys: Mutex<Vec<String>>,
}

impl MemoryAccounts {
    pub(super) fn new(sessions: &SessionsInMemory, case: &Case) -> Self {
        let models = sessions.child.models.iter().map(|model| ModelOption {
            id: model.id.clone(),
            provider: "openai".to_owned(),
            provider_label: Some("parlor".to_owned()),
            label: model.name.clone(),
            description: "an agent".to_owned(),
            context_window: None,
            choice: AgentChoice { agent: AgentId::parse(&model.id).ok(), ..AgentChoice::default() },
        });
        let mut models: Vec<ModelOption> = models.collect();
        models.sort_by_key(|model| model.id != sessions.child.default_model);
        Self { models, folder: case.tmp.clone(), keys: Mutex::default() }
    }

    fn keys(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Accounts for MemoryAccounts {
    async fn models(&self, _lists: ModelLists) -> Vec<ModelOption> {
        self.models.clone()
    }

    async fn routes(&self, model: &str) -> Result<Vec<String>, String> {
        Err(format!("the routes to {model} cannot be looked up in a transcript"))
    }

    async fn skills(&self) -> SkillList {
        let folders = SkillFolders { project: ".agents/skills", user: &[".loaf/skills", ".agents/skills"] };
        find_skills(folders, &self.folder, Some(&self.folder), None)
    }

    async fn save_preferences(&self, _preferences: Preferences) -> Result<(), String> {
        Ok(())
    }

    async fn credentials(&self) -> Credentials {
        Credentials { providers: Vec::new(), keys: self.keys().clone() }
    }

    async fn set_key(&self, service: &str, key: Option<SecretText>) -> Result<usize, String> {
        self.keys().retain(|known| known != service);
        if key.is_some() {
            self.keys().push(service.to_owned());
        }
        Ok(0)
    }

    async fn log_in(
        &self,
        _options: LoginOptions,
        _progress: LoginProgressSender,
    ) -> Result<CompletedLogin, LoginFailure> {
        Err(LoginFailure::NotConfigured)
    }

    async fn log_out(&self, _provider: &str) -> Result<bool, String> {
        Ok(false)
    }

    fn hide(&self, _: &[SecretText]) {}

    async fn forget_all(&self) -> Result<(), String> {
        self.keys().clear();
        Ok(())
    }
}
