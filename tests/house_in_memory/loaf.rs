//! The loaf door in front of the house: what is chosen and which keys there are is kept in memory, and nobody
//! can log in.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use parlor_doors::Ticket;
use parlor_doors::loaf::{LoafMachine, Server, Tool};
use parlor_engine::{Clerk, LoginWish, Office, Standing, Teller, find_skills_in};
use parlor_log::{SystemClock, TimeOrderedIds};
use parlor_testkit::Case;
use parlor_vocab::{AgentId, Choice, Hidden, Kept, LoggedIn, LoginFlaw, Logins, Offer, Skills};

use super::House;

/// A house, and what the server in front of it begins with.
pub(crate) struct Loaf {
    house: House,
    clerk: MemoryClerk,
    state: PathBuf,
}

impl Loaf {
    /// What `case` asks for.
    pub(crate) fn of(case: &Case) -> Result<Self, String> {
        let house = House::of(case)?;
        let offers = house.child.models.iter().map(|model| Offer {
            id: model.id.clone(),
            provider: "openai".to_owned(),
            shown_provider: Some("parlor".to_owned()),
            label: model.name.clone(),
            description: "an agent".to_owned(),
            window: None,
            choice: Choice { agent: AgentId::parse(&model.id).ok(), ..Choice::default() },
        });
        let mut offers: Vec<Offer> = offers.collect();
        offers.sort_by_key(|offer| offer.id != house.child.default_model);
        let clerk = MemoryClerk { offers, folder: case.tmp.clone(), keys: Mutex::default() };
        Ok(Self { house, clerk, state: case.home.clone() })
    }

    /// The server.
    pub(crate) async fn serve(self) -> (LoafMachine, Office<Ticket>) {
        let Self { house, clerk, state } = self;
        let clock = Arc::new(SystemClock);
        let tools = house.child.tools.iter().map(|tool| Tool {
            name: tool.name.clone(),
            description: tool.description.clone(),
            schema: tool.schema.clone(),
        });
        let server = Server {
            folder: clerk.folder.clone(),
            user_home: Some(clerk.folder.clone()),
            chats: state.join("parlor.db"),
            kept: Kept {
                model: String::new(),
                provider: String::new(),
                thinking: String::new(),
                route: String::new(),
                onboarded: false,
            },
            offers: clerk.offers().await,
            logins: Logins::default(),
            skill_folders: clerk.skills().await.folders,
            skills: clerk.skills().await.skills.len(),
            tools: tools.collect(),
            clock: Arc::clone(&clock) as _,
            ids: Arc::new(TimeOrderedIds::new(clock)),
        };
        (LoafMachine::new(server), Office::new(house.house, Arc::new(clerk), Standing::Owner))
    }
}

struct MemoryClerk {
    offers: Vec<Offer>,
    folder: PathBuf,
    keys: Mutex<Vec<String>>,
}

impl MemoryClerk {
    fn keys(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Clerk for MemoryClerk {
    async fn offers(&self) -> Vec<Offer> {
        self.offers.clone()
    }

    async fn routes(&self, model: &str) -> Result<Vec<String>, String> {
        Err(format!("the routes to {model} cannot be looked up here"))
    }

    async fn skills(&self) -> Skills {
        find_skills_in(&self.folder, Some(&self.folder), None)
    }

    async fn keep(&self, _kept: Kept) -> Result<(), String> {
        Ok(())
    }

    async fn logins(&self) -> Logins {
        Logins { providers: Vec::new(), keys: self.keys().clone() }
    }

    async fn set_key(&self, service: &str, key: Option<Hidden>) -> Result<usize, String> {
        self.keys().retain(|known| known != service);
        if key.is_some() {
            self.keys().push(service.to_owned());
        }
        Ok(0)
    }

    async fn log_in(&self, _wish: LoginWish, _teller: Teller) -> Result<LoggedIn, LoginFlaw> {
        Err(LoginFlaw::NotConfigured)
    }

    async fn log_out(&self, _provider: &str) -> Result<bool, String> {
        Ok(false)
    }

    async fn forget_all(&self) -> Result<(), String> {
        self.keys().clear();
        Ok(())
    }
}
