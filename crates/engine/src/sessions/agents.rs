//! The configured agents.

use std::collections::BTreeMap;
use std::sync::Arc;

use parlor_model::Agent;
use parlor_vocab::{AgentId, SessionRefusal};

/// The configured agents by id, and the default agent for sessions that chose none.
pub struct Agents {
    pub(super) default: AgentId,
    by_id: BTreeMap<AgentId, Arc<dyn Agent>>,
}

impl Agents {
    /// A set with one agent, which is the default.
    pub fn new(default: AgentId, agent: Arc<dyn Agent>) -> Self {
        Self { by_id: BTreeMap::from([(default.clone(), agent)]), default }
    }

    /// Adds another agent, or replaces the one with this id.
    #[must_use]
    pub fn with(mut self, id: AgentId, agent: Arc<dyn Agent>) -> Self {
        self.by_id.insert(id, agent);
        self
    }

    /// The ids and display names of all agents, the default first.
    pub(super) fn list(&self) -> Vec<(AgentId, String)> {
        let mut list: Vec<_> =
            self.by_id.iter().map(|(id, agent)| (id.clone(), agent.name().to_owned())).collect();
        list.sort_by_key(|(id, _)| *id != self.default);
        list
    }

    /// The agent `wanted`, or the default if it is `None`.
    pub(super) fn find(&self, wanted: Option<&AgentId>) -> Result<(AgentId, Arc<dyn Agent>), SessionRefusal> {
        let id = wanted.unwrap_or(&self.default);
        let agent = self.by_id.get(id).ok_or_else(|| SessionRefusal::UnknownAgent(id.clone()))?;
        Ok((id.clone(), Arc::clone(agent)))
    }
}
