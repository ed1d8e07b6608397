//! The tools that the project of a run brings, and what the user has answered about them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use parlor_tools::{ProjectMcpServers, ToolServerStatus, ToolSource};
use parlor_vocab::SessionId;

/// How many answers are known at most; the oldest are forgotten, and asked about again.
pub const MAX_PROJECT_ANSWERS: usize = 1024;

/// The servers of all projects, with the answers of this process. Clones share them.
#[derive(Clone)]
pub(super) struct AllProjectTools {
    servers: Arc<ProjectMcpServers>,
    /// By session and digest; the latest last.
    answers: Arc<Mutex<VecDeque<(SessionId, String, bool)>>>,
}

impl AllProjectTools {
    pub(super) fn new(servers: Arc<ProjectMcpServers>) -> Self {
        Self { servers, answers: Arc::default() }
    }

    pub(super) fn statuses(&self) -> Vec<ToolServerStatus> {
        self.servers.statuses()
    }

    /// Those of a run in `session`.
    pub(super) fn for_run(&self, session: &SessionId) -> ProjectTools {
        ProjectTools { all: self.clone(), session: session.clone(), source: OnceLock::new() }
    }
}

/// The servers of the project of one run.
pub(super) struct ProjectTools {
    all: AllProjectTools,
    session: SessionId,
    /// Set when it is decided whether the run gets them.
    source: OnceLock<Option<Arc<dyn ToolSource>>>,
}

impl ProjectTools {
    pub(super) fn servers(&self) -> &Arc<ProjectMcpServers> {
        &self.all.servers
    }

    /// What a person answered in this session about the file with this digest.
    pub(super) fn answer(&self, digest: &str) -> Option<bool> {
        let answers = self.all.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |(session, of, _): &&(SessionId, String, bool)| *session == self.session && of == digest;
        answers.iter().rev().find(is_it).map(|(_, _, is_allowed)| *is_allowed)
    }

    pub(super) fn remember(&self, digest: &str, is_allowed: bool) {
        let mut answers = self.all.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.push_back((self.session.clone(), digest.to_owned(), is_allowed));
        if answers.len() > MAX_PROJECT_ANSWERS {
            answers.pop_front();
        }
    }

    pub(super) fn is_decided(&self) -> bool {
        self.source.get().is_some()
    }

    /// Gives the run these servers, or none. The first decision counts.
    pub(super) fn decide(&self, source: Option<Arc<dyn ToolSource>>) {
        let _ = self.source.set(source);
    }

    /// The servers, if the run gets them.
    pub(super) fn source(&self) -> Option<&Arc<dyn ToolSource>> {
        self.source.get()?.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_belongs_to_its_session_and_text_and_old_ones_are_forgotten() {
        let all = AllProjectTools::new(Arc::new(ProjectMcpServers::new([], Vec::new(), Arc::new(|_| ()))));
        let of = |session: &str| all.for_run(&SessionId::parse(session).unwrap());
        of("s1").remember("a", true);
        of("s1").remember("b", false);
        assert_eq!(
            (of("s1").answer("a"), of("s1").answer("b"), of("s2").answer("a")),
            (Some(true), Some(false), None)
        );
        of("s1").remember("a", false);
        assert_eq!(of("s1").answer("a"), Some(false), "the latest counts");
        (0..MAX_PROJECT_ANSWERS).for_each(|_| of("s3").remember("c", true));
        assert_eq!(of("s1").answer("a"), None);
    }
}
