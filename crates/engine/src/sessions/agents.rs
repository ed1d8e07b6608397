//! The configured agents, and which of them answers.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use parlor_model::Agent;
use parlor_vocab::{AgentChoice, AgentId, SessionRefusal};

use crate::session::ResolvedChoice;

/// Lists of models that want a provider before each name have this one before the names of agents.
const PREFIX: &str = "parlor/";

/// The configured agents by id, and the default agent for sessions that chose none. They can be replaced while sessions
/// use them: a run keeps the agent that it began with.
pub struct Agents(RwLock<Arc<AgentSet>>);

/// The agents of one moment.
#[derive(Clone)]
struct AgentSet {
    default: AgentId,
    by_id: BTreeMap<AgentId, Arc<dyn Agent>>,
}

/// What answers an input, with the agent itself.
pub(super) struct Resolution {
    pub(super) choice: ResolvedChoice,
    pub(super) agent: Arc<dyn Agent>,
}

impl Agents {
    /// A set with one agent, which is the default.
    pub fn new(default: AgentId, agent: Arc<dyn Agent>) -> Self {
        let set = AgentSet { by_id: BTreeMap::from([(default.clone(), agent)]), default };
        Self(RwLock::new(Arc::new(set)))
    }

    /// Adds another agent, or replaces the one with this id.
    #[must_use]
    pub fn with(self, id: AgentId, agent: Arc<dyn Agent>) -> Self {
        let mut set = AgentSet::clone(&self.now());
        set.by_id.insert(id, agent);
        Self(RwLock::new(Arc::new(set)))
    }

    /// Uses the agents of `new` from now on.
    pub(super) fn replace(&self, new: &Agents) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = new.now();
    }

    fn now(&self) -> Arc<AgentSet> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The ids and display names of all agents, the default first.
    pub(super) fn list(&self) -> Vec<(AgentId, String)> {
        let set = self.now();
        let mut list: Vec<_> =
            set.by_id.iter().map(|(id, agent)| (id.clone(), agent.name().to_owned())).collect();
        list.sort_by_key(|(id, _)| *id != set.default);
        list
    }

    /// What answers an input with `choice` in a session that chose `of_session`; see [`AgentSet::resolve`].
    pub(super) fn resolve(
        &self,
        of_session: &AgentChoice,
        choice: &AgentChoice,
    ) -> Result<Resolution, SessionRefusal> {
        self.now().resolve(of_session, choice)
    }

    /// `choice` in the form that a session records; see [`AgentSet::recorded`].
    pub(super) fn recorded(
        &self,
        of_session: &AgentChoice,
        choice: AgentChoice,
    ) -> Result<AgentChoice, SessionRefusal> {
        self.now().recorded(of_session, choice)
    }

    /// What answers in a session that chose nothing.
    pub(super) fn resolve_default(&self) -> Resolution {
        self.now().resolve_default()
    }
}

impl AgentSet {
    /// What answers an input with `choice` in a session that chose `of_session`.
    ///
    /// - A model with the name of an agent is that agent with its own model, unless the agent that would answer knows
    ///   a configured model of this name.
    /// - The session's model counts only with the session's agent.
    /// - If the session's agent is not configured any more, the default agent answers, with its own model. An unknown
    ///   agent in `choice` is refused.
    fn resolve(&self, of_session: &AgentChoice, choice: &AgentChoice) -> Result<Resolution, SessionRefusal> {
        let refuse_unknown = |id: &AgentId| match self.by_id.contains_key(id) {
            true => Ok(()),
            false => Err(SessionRefusal::UnknownAgent(id.clone())),
        };
        choice.agent.as_ref().map_or(Ok(()), refuse_unknown)?;
        let session_agent = of_session.agent.as_ref().unwrap_or(&self.default);
        let missing = choice.agent.is_none() && !self.by_id.contains_key(session_agent);
        let keeps_agent = choice.agent.as_ref().is_none_or(|agent| agent == session_agent);
        let inherited = of_session.model.as_deref().filter(|_| keeps_agent);
        let chosen = choice.agent.as_ref().unwrap_or(session_agent);
        // The name of the chosen agent stands for its own model.
        let is_named = choice.agent.is_some() || of_session.agent.is_some();
        let wanted = choice.model.as_deref().or(inherited).filter(|model| !model.is_empty());
        let wanted = wanted.map(|model| self.without_prefix(model));
        let wanted = wanted.filter(|model| !(is_named && *model == chosen.as_str()));
        let mut id = if missing { &self.default } else { chosen };
        let mut model = wanted;
        if let Some(name) = wanted
            && !self.agent(id).is_some_and(|agent| agent.has_model_named(name))
        {
            if let Some((named, _)) = self.by_id.iter().find(|(id, _)| id.as_str() == name) {
                (id, model) = (named, None);
            } else if missing && choice.model.is_none() {
                // The model was chosen for the agent that is missing.
                model = None;
            }
        }
        let agent = self.agent(id).ok_or_else(|| SessionRefusal::UnknownAgent(id.clone()))?;
        let choice = ResolvedChoice {
            agent: id.clone(),
            model_id: agent.model_id(model),
            model: model.map(str::to_owned),
            missing_agent: missing.then(|| session_agent.clone()),
        };
        Ok(Resolution { choice, agent: Arc::clone(agent) })
    }

    /// `choice` in the form that a session records: it names the agent, if the model is the name of an agent, and a
    /// model that the session chose for another agent does not stay.
    fn recorded(&self, of_session: &AgentChoice, choice: AgentChoice) -> Result<AgentChoice, SessionRefusal> {
        if choice.agent.is_none() && choice.model.is_none() {
            return Ok(choice);
        }
        let resolved = self.resolve(of_session, &choice)?.choice;
        let own_model = resolved.agent.to_string();
        let session_agent = of_session.agent.as_ref().unwrap_or(&self.default);
        let changes_agent = resolved.agent != *session_agent;
        let model = match (choice.model, resolved.model) {
            (Some(_), None) if changes_agent => Some(own_model),
            (None, None) if changes_agent && of_session.model.is_some() => Some(own_model),
            (asked, _) => asked,
        };
        let names_agent = choice.agent.is_some() || (changes_agent && model.is_some());
        Ok(AgentChoice { agent: names_agent.then_some(resolved.agent), model, ..choice })
    }

    /// What answers in a session that chose nothing.
    fn resolve_default(&self) -> Resolution {
        let nothing = AgentChoice::default();
        self.resolve(&nothing, &nothing).expect("the default agent is one of the agents")
    }

    /// The id of an agent whose name has [`PREFIX`], else `model` itself.
    fn without_prefix<'a>(&self, model: &'a str) -> &'a str {
        let id = model.strip_prefix(PREFIX).filter(|id| self.by_id.keys().any(|known| known.as_str() == *id));
        id.unwrap_or(model)
    }

    fn agent(&self, id: &AgentId) -> Option<&Arc<dyn Agent>> {
        self.by_id.get(id)
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use parlor_model::{AgentContext, LocalAgent, Turn, TurnError};

    use super::*;

    /// An agent with one model of its own, and the configured model `shared`.
    struct WithModel(&'static str);

    #[async_trait]
    impl Agent for WithModel {
        fn name(&self) -> &str {
            self.0
        }

        fn has_model_named(&self, name: &str) -> bool {
            name == "shared"
        }

        fn model_id(&self, chosen: Option<&str>) -> Option<String> {
            Some(chosen.unwrap_or(self.0).to_owned())
        }

        async fn answer(&self, _: &Turn, _: &mut dyn AgentContext) -> Result<(), TurnError> {
            Ok(())
        }
    }

    fn id(id: &str) -> AgentId {
        AgentId::parse(id).unwrap()
    }

    /// `main` (the default) and `scout` have a model; `local` has none.
    fn agents() -> Agents {
        Agents::new(id("main"), Arc::new(WithModel("own-of-main")))
            .with(id("scout"), Arc::new(WithModel("own-of-scout")))
            .with(id("shared"), Arc::new(WithModel("own-of-shared")))
            .with(id("local"), Arc::new(LocalAgent::default()))
    }

    fn choice(agent: &str, model: &str) -> AgentChoice {
        AgentChoice {
            agent: Some(agent).filter(|agent| !agent.is_empty()).map(id),
            model: Some(model.to_owned()).filter(|model| !model.is_empty()),
            reasoning: None,
        }
    }

    /// The agent, the provider's id of the model, and the missing agent.
    fn resolve(of_session: &AgentChoice, choice: &AgentChoice) -> (String, String, String) {
        let resolved = agents().resolve(of_session, choice).unwrap().choice;
        let missing = resolved.missing_agent.map(|id| id.to_string()).unwrap_or_default();
        (resolved.agent.to_string(), resolved.model_id.unwrap_or_default(), missing)
    }

    fn answers(agent: &str, model: &str) -> (String, String, String) {
        (agent.to_owned(), model.to_owned(), String::new())
    }

    #[test]
    fn the_name_of_an_agent_means_its_own_model() {
        let none = AgentChoice::default();
        assert_eq!(resolve(&none, &none), answers("main", "own-of-main"));
        for model in ["scout", "parlor/scout"] {
            assert_eq!(resolve(&none, &choice("", model)), answers("scout", "own-of-scout"), "{model}");
        }
        assert_eq!(resolve(&none, &choice("", "main")), answers("main", "own-of-main"));
        assert_eq!(resolve(&none, &choice("scout", "scout")), answers("scout", "own-of-scout"));
        assert_eq!(resolve(&choice("scout", "scout"), &none), answers("scout", "own-of-scout"));
        assert_eq!(resolve(&none, &choice("", "local")), answers("local", ""));
        assert_eq!(resolve(&none, &choice("", "parlor/x")), answers("main", "parlor/x"));
    }

    #[test]
    fn a_configured_model_comes_before_an_agent_of_the_same_name() {
        let none = AgentChoice::default();
        assert_eq!(resolve(&none, &choice("", "shared")), answers("main", "shared"));
        assert_eq!(resolve(&none, &choice("shared", "shared")), answers("shared", "own-of-shared"));
        assert_eq!(resolve(&choice("local", ""), &choice("", "shared")), answers("shared", "own-of-shared"));
    }

    #[test]
    fn a_model_stays_with_the_agent_that_it_was_chosen_for() {
        let session = choice("main", "some-id");
        assert_eq!(resolve(&session, &choice("", "")), answers("main", "some-id"));
        assert_eq!(resolve(&session, &choice("main", "")), answers("main", "some-id"));
        assert_eq!(resolve(&session, &choice("scout", "")), answers("scout", "own-of-scout"));
        assert_eq!(resolve(&choice("", "some-id"), &choice("main", "")), answers("main", "some-id"));
    }

    #[test]
    fn the_default_agent_answers_for_one_that_is_not_configured_any_more() {
        let gone = |model: &str, id: &str| {
            let (agent, model_id, missing) = resolve(&choice("gone", model), &AgentChoice::default());
            assert_eq!((agent.as_str(), missing.as_str()), ("main", "gone"));
            assert_eq!(model_id, id);
        };
        gone("", "own-of-main");
        gone("gone", "own-of-main");
        gone("shared", "shared");
        gone("id-of-its-provider", "own-of-main");
        let session = choice("gone", "");
        assert_eq!(resolve(&session, &choice("", "some-id")).1, "some-id");
        assert_eq!(resolve(&session, &choice("scout", "")), answers("scout", "own-of-scout"));
        let refused = agents().resolve(&AgentChoice::default(), &session).err();
        assert_eq!(refused, Some(SessionRefusal::UnknownAgent(id("gone"))));
    }

    #[test]
    fn a_recorded_choice_names_the_agent_and_replaces_the_model_of_another() {
        let recorded = |of_session: &AgentChoice, asked| agents().recorded(of_session, asked).unwrap();
        let none = AgentChoice::default();
        assert_eq!(recorded(&none, choice("", "scout")), choice("scout", "scout"));
        assert_eq!(recorded(&none, choice("", "some-id")), choice("", "some-id"));
        assert_eq!(recorded(&choice("main", "some-id"), choice("scout", "")), choice("scout", "scout"));
        assert_eq!(recorded(&choice("scout", "x"), choice("scout", "scout")), choice("scout", "scout"));
        assert_eq!(recorded(&choice("gone", "x"), none.clone()), none);
        assert_eq!(recorded(&choice("gone", "x"), choice("", "some-id")), choice("main", "some-id"));
    }

    #[test]
    fn replaced_agents_answer_later_inputs_and_keep_earlier_runs() {
        let agents = agents();
        let nothing = AgentChoice::default();
        let running = agents.resolve(&nothing, &nothing).unwrap();
        agents.replace(&Agents::new(id("new"), Arc::new(WithModel("own-of-new"))));
        assert_eq!(running.agent.name(), "own-of-main");
        assert_eq!(agents.resolve_default().choice.agent, id("new"));
        assert_eq!(agents.list().len(), 1);
        // A session of an agent that is gone goes on with the default agent.
        let of_session = AgentChoice { agent: Some(id("scout")), ..AgentChoice::default() };
        assert_eq!(agents.resolve(&of_session, &nothing).unwrap().choice.missing_agent, Some(id("scout")));
    }
}
