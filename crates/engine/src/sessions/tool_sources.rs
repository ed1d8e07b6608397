//! The tools of a run: those that parlor has itself, and those of sources, which serve all sessions or one.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::join_all;
use parlor_tools::{OfferedTools, ProjectMcpServers, ToolServerStatus, ToolSource, Toolbox, catch_panic};
use parlor_vocab::{SessionId, ToolAnnotations};
use tokio::sync::OnceCell;

use super::project_tools::{AllProjectTools, ProjectTools};

type SourcesBySession = HashMap<SessionId, Vec<Arc<dyn ToolSource>>>;

/// The sources of tools. Clones share those of single sessions.
#[derive(Clone, Default)]
pub(super) struct ToolSources {
    for_all: Vec<Arc<dyn ToolSource>>,
    for_one: Arc<Mutex<SourcesBySession>>,
    of_projects: Option<AllProjectTools>,
}

impl ToolSources {
    pub(super) fn add(&mut self, source: Arc<dyn ToolSource>) {
        self.for_all.push(source);
    }

    pub(super) fn set_project_servers(&mut self, servers: Arc<ProjectMcpServers>) {
        self.of_projects = Some(AllProjectTools::new(servers));
    }

    /// How the servers of all sessions and of projects are now.
    pub(super) fn servers(&self) -> Vec<ToolServerStatus> {
        let of_projects = self.of_projects.as_ref().map(AllProjectTools::statuses);
        let of_settings = self.for_all.iter().flat_map(|source| source.servers());
        of_settings.chain(of_projects.unwrap_or_default()).collect()
    }

    pub(super) fn add_for(&self, session: &SessionId, source: Arc<dyn ToolSource>) -> SessionToolSource {
        let mut for_one = self.for_one.lock().unwrap_or_else(PoisonError::into_inner);
        for_one.entry(session.clone()).or_default().push(Arc::clone(&source));
        SessionToolSource { session: session.clone(), source, sources: self.clone() }
    }

    fn remove_for(&self, session: &SessionId, source: &Arc<dyn ToolSource>) {
        let mut for_one = self.for_one.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sources) = for_one.get_mut(session) {
            sources.retain(|other| !Arc::ptr_eq(other, source));
            if sources.is_empty() {
                for_one.remove(session);
            }
        }
    }

    /// The tools of a run in `session`. The sources are asked when the run first needs them.
    pub(super) fn for_run(&self, own: &Toolbox, session: &SessionId) -> RunTools {
        let for_one = self.for_one.lock().unwrap_or_else(PoisonError::into_inner);
        let sources = self.for_all.iter().chain(for_one.get(session).into_iter().flatten());
        let project = self.of_projects.as_ref().map(|all| all.for_run(session));
        RunTools { own: own.clone(), sources: sources.cloned().collect(), project, all: OnceCell::new() }
    }
}

/// Gives the runs of one session the tools of a source, until it is dropped. Runs that have begun keep them.
pub struct SessionToolSource {
    session: SessionId,
    source: Arc<dyn ToolSource>,
    sources: ToolSources,
}

impl Drop for SessionToolSource {
    fn drop(&mut self) {
        self.sources.remove_for(&self.session, &self.source);
    }
}

/// The tools of one run and of its subagents.
pub(super) struct RunTools {
    own: Toolbox,
    sources: Vec<Arc<dyn ToolSource>>,
    project: Option<ProjectTools>,
    all: OnceCell<CollectedTools>,
}

/// The tools of all sources.
pub(super) struct CollectedTools {
    pub(super) toolbox: Toolbox,
    /// Which tools are missing and why.
    pub(super) notices: Vec<String>,
}

impl RunTools {
    /// Whether asking for the tools may take time.
    pub(super) fn has_sources(&self) -> bool {
        self.sources().next().is_some() && !self.all.initialized()
    }

    /// Whether a call of this tool asks the sources.
    pub(super) fn needs_sources(&self, tool: &str) -> bool {
        !self.all.initialized() && self.own.find(tool).is_err()
    }

    /// What the project brings, if it is not decided yet whether the run gets it.
    pub(super) fn undecided_project(&self) -> Option<&ProjectTools> {
        self.project.as_ref().filter(|project| !project.is_decided() && !self.all.initialized())
    }

    /// Remembers for this session what a person answered about the project's file with this digest.
    pub(super) fn remember_project_answer(&self, digest: &str, is_allowed: bool) {
        if let Some(project) = &self.project {
            project.remember(digest, is_allowed);
        }
    }

    fn sources(&self) -> impl Iterator<Item = &Arc<dyn ToolSource>> {
        self.sources.iter().chain(self.project.as_ref().and_then(ProjectTools::source))
    }

    /// The toolbox with a tool of this name. Asks the sources only if parlor itself has no such tool.
    pub(super) async fn with_tool(&self, name: &str, folder: &Path) -> &Toolbox {
        match self.own.find(name) {
            Ok(_) => &self.own,
            Err(_) => &self.collect(folder).await.toolbox,
        }
    }

    /// What a tool that is not parlor's own says of itself.
    pub(super) fn annotations_of_others(&self, name: &str) -> Option<ToolAnnotations> {
        if self.own.find(name).is_ok() {
            return None;
        }
        self.all.get()?.toolbox.find(name).ok().map(|tool| tool.annotations())
    }

    /// Whether calls of this tool may run in parallel with others.
    pub(super) fn is_parallel(&self, name: &str) -> bool {
        let toolbox = self.all.get().map_or(&self.own, |all| &all.toolbox);
        toolbox.find(name).is_ok_and(|tool| tool.is_parallel())
    }

    /// All tools. Asks all sources at the same time, once. Parlor's own tools keep their names; of two others with the
    /// same name the later one gets a number.
    pub(super) async fn collect(&self, folder: &Path) -> &CollectedTools {
        self.all
            .get_or_init(async || {
                let asked = self.sources().map(|source| catch_panic(source.tools(folder)));
                let (mut toolbox, mut notices) = (self.own.clone(), Vec::new());
                for offered in join_all(asked).await {
                    let offered = offered.unwrap_or_else(|panicked| OfferedTools {
                        notices: vec![panicked.failure("A source of tools").message],
                        ..OfferedTools::default()
                    });
                    offered.tools.into_iter().for_each(|tool| toolbox.add(tool));
                    notices.extend(offered.notices);
                }
                // Together, however many sources they come from.
                toolbox.hide_excess(self.own.iter().count());
                CollectedTools { toolbox, notices }
            })
            .await
    }
}
