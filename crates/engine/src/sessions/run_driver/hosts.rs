//! The hosts that commands of a run connect to: asks about those that a rule says to ask about, and records all of them.
//!
//! The proxy of a sandbox asks [`HostRules`]. While its call is at work, the driver answers, because it can ask a person and
//! record events; what a command leaves running in the background has only the rules.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use parlor_model::TurnError;
use parlor_tools::{PausedTime, ProxyDecision, ProxyRules, Sandbox, SandboxNetwork};
use parlor_vocab::{
    PolicyRule, Question, QuestionAnswer, QuestionEvent, QuestionId, QuestionKind, QuestionOutcome,
    RuleAction, RunEvent, ToolCallId, ToolEvent,
};
use tokio::sync::{mpsc, oneshot};

use super::RunDriver;
use super::tool_calls::TOOL_STARTED_PERCENT;
use crate::policy::WhenUnattended;
use crate::sessions::handle::ActorMessage;
use crate::sessions::policy_source::RunRules;
use crate::visible::escaped;

/// How many connections of a run are recorded: each host and port once if they are allowed, and once if they are refused.
pub const MAX_HOST_EVENTS: usize = 64;

/// How many hosts a run asks about. Others are refused.
pub const MAX_HOST_QUESTIONS: usize = 16;

/// How many connections may wait for the driver.
const WAITING_REQUESTS: usize = 16;

/// What a run knows about hosts.
#[derive(Debug, Default)]
pub(in crate::sessions) struct RunHosts {
    /// The answers of a person, which hold for the rest of the run.
    pub(in crate::sessions) answers: HashMap<String, bool>,
    /// How many hosts were asked about.
    asked: usize,
    /// What was recorded: the address, and whether it was allowed.
    recorded: HashSet<(String, bool)>,
}

impl RunHosts {
    /// Whether one more host may be asked about. Counts it.
    fn may_ask(&mut self) -> bool {
        self.asked += 1;
        self.asked <= MAX_HOST_QUESTIONS
    }

    /// `None` if this connection need not be recorded; otherwise whether it is the last one that is.
    fn recorded(&mut self, address: &str, is_allowed: bool) -> Option<bool> {
        let is_new =
            self.recorded.len() < MAX_HOST_EVENTS && self.recorded.insert((address.to_owned(), is_allowed));
        is_new.then_some(self.recorded.len() == MAX_HOST_EVENTS)
    }
}

/// A connection that the proxy wants to make.
pub(super) struct HostRequest {
    host: String,
    port: u16,
    reply: oneshot::Sender<bool>,
}

/// Lets commands connect to the hosts that the policy allows.
pub(in crate::sessions) struct HostRules {
    rules: Arc<RunRules>,
    /// To the driver of the call, if there is one.
    requests: Option<mpsc::Sender<HostRequest>>,
}

impl HostRules {
    /// For commands that no call waits for.
    pub(in crate::sessions) fn without_call(rules: &Arc<RunRules>) -> Self {
        Self { rules: Arc::clone(rules), requests: None }
    }
}

impl std::fmt::Debug for HostRules {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("HostRules").finish_non_exhaustive()
    }
}

impl ProxyRules for HostRules {
    fn allows<'a>(&'a self, host: &'a str, port: u16) -> ProxyDecision<'a> {
        Box::pin(async move {
            if let Some(requests) = &self.requests {
                let (reply, answer) = oneshot::channel();
                let request = HostRequest { host: host.to_owned(), port, reply };
                if requests.send(request).await.is_ok()
                    && let Ok(is_allowed) = answer.await
                {
                    return is_allowed;
                }
            }
            self.rules.host_verdict(host).action == RuleAction::Allow
        })
    }
}

/// What a call has seen of its connections.
#[derive(Default)]
pub(super) struct SeenHosts {
    /// The question that its command waits for.
    pending: Mutex<Option<QuestionId>>,
    /// The addresses that were refused.
    refused: Mutex<Vec<String>>,
}

impl SeenHosts {
    /// The addresses that were refused.
    pub(super) fn refused(&self) -> Vec<String> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_pending(&self, question: Option<QuestionId>) -> Option<QuestionId> {
        std::mem::replace(&mut *self.pending.lock().unwrap_or_else(PoisonError::into_inner), question)
    }
}

/// A call whose command connects to hosts.
pub(super) struct HostCall<'a> {
    pub(super) rules: Option<&'a Arc<RunRules>>,
    pub(super) id: &'a ToolCallId,
    pub(super) tool: &'a str,
    pub(super) seen: &'a SeenHosts,
    pub(super) paused: &'a PausedTime,
}

/// The requests of the proxy of this sandbox, and the sandbox whose proxy sends them. `None` if it has no proxy.
pub(super) fn reporting(
    rules: &Arc<RunRules>,
    sandbox: &Sandbox,
) -> Option<(mpsc::Receiver<HostRequest>, Sandbox)> {
    let SandboxNetwork::Proxy(_) = &sandbox.network else { return None };
    let (sender, requests) = mpsc::channel(WAITING_REQUESTS);
    let proxy = HostRules { rules: Arc::clone(rules), requests: Some(sender) };
    Some((requests, Sandbox { network: SandboxNetwork::Proxy(Arc::new(proxy)), ..sandbox.clone() }))
}

impl RunDriver {
    /// Answers the proxy until the future is dropped, one connection after another: a session has one question at a time.
    pub(super) async fn answer_hosts(
        &self,
        requests: Option<mpsc::Receiver<HostRequest>>,
        call: HostCall<'_>,
    ) -> Infallible {
        if let (Some(mut requests), Some(rules)) = (requests, call.rules) {
            while let Some(HostRequest { host, port, reply }) = requests.recv().await {
                // A run that is stopped, or cannot record, connects nowhere.
                let is_allowed = self.is_host_allowed(rules, &call, &host, port).await.unwrap_or(false);
                // The connection may be gone.
                let _ = reply.send(is_allowed);
            }
        }
        std::future::pending().await
    }

    async fn is_host_allowed(
        &self,
        rules: &Arc<RunRules>,
        call: &HostCall<'_>,
        host: &str,
        port: u16,
    ) -> Result<bool, TurnError> {
        let verdict = rules.host_verdict(host);
        let (is_allowed, reason) = match verdict.action {
            RuleAction::Allow => (true, verdict.reason),
            RuleAction::Deny => (false, verdict.reason),
            RuleAction::Ask if !rules.asked.can_answer => {
                let is_allowed = rules.settings().when_unattended == WhenUnattended::Allow;
                let word = if is_allowed { "allow" } else { "deny" };
                (is_allowed, format!("nobody can be asked here (when_unattended = \"{word}\")"))
            }
            RuleAction::Ask if !rules.hosts().may_ask() => {
                (false, format!("the run has asked about {MAX_HOST_QUESTIONS} hosts, which is the limit"))
            }
            RuleAction::Ask => {
                let is_allowed = self.ask_for_host(rules, call, host, port, verdict.reason).await?;
                (is_allowed, "the user was asked".to_owned())
            }
        };
        let address = format!("{host}:{port}");
        // Who was asked and refused the host is not offered more.
        if !is_allowed && rules.hosts().answers.get(host) != Some(&false) {
            call.seen.refused.lock().unwrap_or_else(PoisonError::into_inner).push(address.clone());
        }
        let recorded = rules.hosts().recorded(&address, is_allowed);
        if let Some(is_last) = recorded {
            let what = if is_allowed { "Connects to" } else { "Is refused a connection to" };
            let more = if is_last { ". Further connections of this run are not recorded" } else { "" };
            let message = format!("{what} {address}: {reason}{more}");
            let (call, percent) = (call.id.clone(), TOOL_STARTED_PERCENT);
            self.record(vec![RunEvent::Tool(ToolEvent::Progressed { call, message, percent })]).await?;
        }
        Ok(is_allowed)
    }

    async fn ask_for_host(
        &self,
        rules: &Arc<RunRules>,
        call: &HostCall<'_>,
        host: &str,
        port: u16,
        reason: String,
    ) -> Result<bool, TurnError> {
        let rule = PolicyRule { host: Some(host.to_owned()), ..PolicyRule::new(RuleAction::Allow) };
        let question = Question {
            id: QuestionId::generate(self.deps.ids.next()),
            kind: QuestionKind::Host,
            call: call.id.clone(),
            tool: call.tool.to_owned(),
            title: escaped(&format!("Let the command connect to `{host}:{port}`")),
            reason: escaped(&reason),
            detail: format!("{host}:{port}"),
            remembered: Some(rule.clone()),
            // The command is at work, and ends with this process.
            is_repeatable: false,
        };
        // Before it is recorded: the command may end at any time, which drops this future.
        call.seen.set_pending(Some(question.id.clone()));
        call.paused.begin();
        let asked = self.record(vec![RunEvent::Question(QuestionEvent::Asked(question.clone()))]).await;
        let outcome = match asked {
            Ok(()) => self.await_answer(&question.id, self.deps.clock.now()).await,
            Err(error) => Err(error),
        };
        call.paused.end();
        call.seen.set_pending(None);
        let is_allowed = match outcome? {
            QuestionOutcome::Answered { answer: QuestionAnswer::AllowOnce, .. } => true,
            QuestionOutcome::Answered { answer: QuestionAnswer::AllowAlways, .. } => {
                // If that fails, the answer holds for this run.
                let _ = rules.remember(rule).await;
                true
            }
            QuestionOutcome::Answered { answer: QuestionAnswer::Deny { .. }, .. }
            | QuestionOutcome::Expired
            | QuestionOutcome::Withdrawn => false,
        };
        rules.hosts().answers.insert(host.to_owned(), is_allowed);
        Ok(is_allowed)
    }

    /// Settles the question that a command waited for when it ended.
    pub(super) async fn expire_host_question(&self, seen: &SeenHosts) {
        let Some(question) = seen.set_pending(None) else { return };
        self.set_waiting(false);
        // Without an actor the run is over.
        let _ = self.actor.send(ActorMessage::ExpireQuestion(question)).await;
    }
}
