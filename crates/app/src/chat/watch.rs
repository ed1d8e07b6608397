//! `parlor chat --watch`: shows a session live, from whichever client and process, and sends nothing.

use std::io::{self, Write, stderr, stdout};
use std::sync::Arc;

use anyhow::Context;
use parlor_engine::{Sessions, visible};
use parlor_vocab::{RunEnding, RunEvent, RunId, SessionEvent, SessionId, SessionUpdate};

use super::interrupts::Interrupts;
use super::view::{TerminalView, View, ending};
use crate::console::{Console, Style};
use crate::json;
use crate::sessions::pick::{pick_session, short_id};

/// Shows what happens in the session `text` until the user leaves. A run that is active is shown from its start.
pub(super) async fn watch(
    sessions: &Arc<Sessions>,
    text: &str,
    as_json: bool,
    console: Console,
    interrupts: &mut Interrupts,
) -> anyhow::Result<()> {
    let record = pick_session(sessions, text).await?;
    let session = record.id;
    let start = sessions.start_of_run_at(&session, record.head).await?;
    let mut watcher = sessions.join(&session, start).await;
    let notice = format!("Watching session {}. Nothing is sent. Ctrl-C leaves.", short_id(&session));
    writeln!(stderr(), "{}", console.style.dim(&notice))?;
    // A pipe gets tools too, so all goes to stdout, with colours on a terminal only.
    let console = Console { style: Style(console.style.0 && console.stdout_is_terminal), ..console };
    let (mut out, mut details) = (stdout(), stdout());
    let view = TerminalView::new(&mut out, &mut details, console);
    let mut runs = WatchedRuns { view, run: None };
    loop {
        let update = tokio::select! {
            update = watcher.next() => update.context("cannot read the session")?,
            _ = interrupts.next() => return Ok(()),
        };
        match as_json {
            true => json::write_update(&mut stdout(), &session, &update)?,
            false => runs.print(&session, &update)?,
        }
    }
}

/// Prints the runs of a session one after another, each with the message that it answers.
struct WatchedRuns<'a> {
    view: TerminalView<'a>,
    /// The run that was started last, except for subagents.
    run: Option<RunId>,
}

impl WatchedRuns<'_> {
    fn print(&mut self, session: &SessionId, update: &SessionUpdate) -> io::Result<()> {
        if let SessionUpdate::Entry(entry) = update
            && let SessionEvent::Run { run, event, .. } = &entry.event
        {
            if let RunEvent::Started { parent: None, input, .. } = event {
                self.run = Some(run.clone());
                self.view.message(&input.text)?;
            } else if let RunEvent::Steered { input, .. } = event {
                self.view.message(&input.text)?;
            }
        }
        // Without a run there is nothing to show: the session was renamed, or an input is queued.
        let Some(run) = &self.run else { return Ok(()) };
        self.view.update(session, run, update)?;
        match ending(run, update) {
            Some(RunEnding::Stopped { cause, .. }) => {
                self.view.notice(&format!("stopped: {}", visible(cause.reason())))
            }
            Some(RunEnding::Completed { .. } | RunEnding::Failed(_)) | None => Ok(()),
        }
    }
}
