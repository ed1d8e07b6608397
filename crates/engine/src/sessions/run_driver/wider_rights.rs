//! Offers to run a command once more without the sandbox, if the sandbox seems to have made it fail.
//!
//! Only a person can accept, and only where a person certainly sees the question at once: what a command prints decides
//! whether the offer is made, so a hostile command can bring it about.

use std::sync::Arc;

use parlor_model::{ToolCall, TurnError};
use parlor_vocab::{
    Failure, Question, QuestionEvent, QuestionId, QuestionKind, RunEvent, ToolCallId, ToolEvent, ToolOutput,
    truncate_chars, truncate_middle,
};
use tokio_util::sync::CancellationToken;

use super::RunDriver;
use super::approval::{Permission, QUESTION_DETAIL_BYTES, denied};
use super::hosts::SeenHosts;
use super::tool_calls::TOOL_STARTED_PERCENT;
use crate::visible::escaped;

/// What programs print if the sandbox stops them, in lowercase: the texts of `EACCES`, `EPERM` and `EROFS`, and of names and
/// networks that cannot be reached.
const SIGNS: [&str; 10] = [
    "permission denied",
    "operation not permitted",
    "read-only file system",
    "eacces",
    "eperm",
    "erofs",
    "could not resolve",
    "name resolution",
    "name or service not known",
    "network is unreachable",
];

/// The last line of a command that the filter of system calls has killed.
const KILLED_BY_FILTER: &str = "[killed by signal 31]";

/// How many characters of a command the title of the question shows.
const COMMAND_CHARS: usize = 120;

/// How many bytes of the first output the question shows. The rest of its detail is the command.
const SHOWN_OUTPUT_BYTES: usize = QUESTION_DETAIL_BYTES / 2;

/// Before the output of the second run, for the model.
const SECOND_RUN: &str = "[The command failed in the sandbox. The user has allowed it to run once more without the sandbox; this is \
                          the output of the second run:]\n";

impl RunDriver {
    /// Runs a tool. If that was a command that the sandbox made fail, offers to run it once more without the sandbox.
    pub(super) async fn run_and_offer(
        &self,
        call: &ToolCall,
        id: &ToolCallId,
        cancel: &CancellationToken,
    ) -> Result<Result<ToolOutput, Failure>, TurnError> {
        let seen = SeenHosts::default();
        let first = self.run_tool(id, call, self.context.sandbox.clone(), &seen, cancel).await;
        let Some(question) = self.offer(call, id, &first, &seen.refused()).await else { return Ok(first) };
        self.record(vec![RunEvent::Question(QuestionEvent::Asked(question.clone()))]).await?;
        let outcome = self.await_answer(&question.id, self.deps.clock.now()).await?;
        match self.settled(&question, outcome).await {
            Permission::Granted(_) | Permission::GrantedInFull => {
                let (call_id, percent) = (id.clone(), TOOL_STARTED_PERCENT);
                let message = "Once more, without the sandbox".to_owned();
                // Durable before the command runs again, so that after a crash the log shows that it may have run.
                self.record(vec![RunEvent::Tool(ToolEvent::Progressed { call: call_id, message, percent })])
                    .await?;
                Ok(self.run_once_more(call, id, cancel).await)
            }
            Permission::Refused(failure) => {
                if let Some(rules) = &self.rules {
                    rules.refuse_wider();
                }
                Ok(first.map(|mut output| {
                    let refusal = failure.message;
                    output
                        .text
                        .push_str(&format!("\n[It was offered to run it without the sandbox: {refusal}]"));
                    output
                }))
            }
            Permission::Ask(_) => Ok(first),
        }
    }

    /// Runs the command of a call without the sandbox.
    pub(super) async fn run_once_more(
        &self,
        call: &ToolCall,
        id: &ToolCallId,
        cancel: &CancellationToken,
    ) -> Result<ToolOutput, Failure> {
        let again = self.run_tool(id, call, None, &SeenHosts::default(), cancel).await;
        match again {
            Ok(output) => Ok(ToolOutput { text: format!("{SECOND_RUN}{}", output.text), ..output }),
            Err(failure) => Err(Failure { message: format!("{SECOND_RUN}{}", failure.message), ..failure }),
        }
    }

    /// What the answer to an offer means for a call whose process has died meanwhile. The log has not more of the first output
    /// than the question.
    pub(super) fn widened(&self, question: &Question, permission: Permission) -> Permission {
        match permission {
            Permission::Granted(_) | Permission::GrantedInFull => Permission::GrantedInFull,
            Permission::Refused(failure) => {
                Permission::Refused(denied(format!("{}\n{}", failure.message, question.detail)))
            }
            Permission::Ask(question) => Permission::Ask(question),
        }
    }

    /// The question whether to run a command once more, if there is a reason to ask it.
    async fn offer(
        &self,
        call: &ToolCall,
        id: &ToolCallId,
        first: &Result<ToolOutput, Failure>,
        refused_hosts: &[String],
    ) -> Option<Question> {
        let rules = self.rules.as_ref().filter(|rules| rules.may_widen())?;
        self.context.sandbox.as_ref()?;
        let output = &first.as_ref().ok()?.text;
        let toolbox = self.tools.with_tool(&call.tool, &self.context.folder).await;
        let access = Arc::clone(toolbox.find(&call.tool).ok()?).access(&call.input);
        let command = access.command?;
        let why = sandbox_sign(output, refused_hosts)?;
        let input = self.redact.redact(&call.input);
        let shown = truncate_chars(command.lines().next().unwrap_or_default(), COMMAND_CHARS).into_owned();
        let (detail, output) = (
            truncate_middle(&access.detail, SHOWN_OUTPUT_BYTES),
            truncate_middle(output, SHOWN_OUTPUT_BYTES),
        );
        let mode = rules.mode().as_str();
        Some(Question {
            id: QuestionId::generate(self.deps.ids.next()),
            kind: QuestionKind::WiderRights,
            call: id.clone(),
            tool: call.tool.clone(),
            title: escaped(&format!("Run `{shown}` once more, without the sandbox")),
            reason: escaped(&format!(
                "it failed in the sandbox of the mode {mode}: {why}. Without the sandbox it can do everything that you can do"
            )),
            detail: format!("{detail}\n\nIn the sandbox it printed:\n{output}"),
            remembered: None,
            is_repeatable: input == call.input,
        })
    }
}

/// Why the sandbox seems to have made a command fail, whose whole output this is. `None` if it has not.
fn sandbox_sign(output: &str, refused_hosts: &[String]) -> Option<String> {
    let (before, last_line) = output.rsplit_once('\n').unwrap_or(("", output));
    if last_line == KILLED_BY_FILTER {
        return Some("it made a system call that the sandbox forbids".to_owned());
    }
    let code = last_line.strip_prefix("[exit code ")?.strip_suffix(']')?;
    if code == "0" {
        return None;
    }
    if let Some(host) = refused_hosts.first() {
        return Some(format!("it was refused a connection to {host}"));
    }
    let printed = before.to_lowercase();
    let sign = SIGNS.iter().find(|sign| printed.contains(**sign))?;
    Some(format!("it printed \"{sign}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_failed_command_with_a_sign_of_the_sandbox_is_offered_again() {
        let sign = |output: &str| sandbox_sign(output, &[]);
        assert!(sign("touch: /etc/x: Read-only file system\n[exit code 1]").is_some());
        assert!(sign("sh: 1: cannot create /x: Permission denied\n[exit code 2]").is_some());
        assert!(sign("Error: EROFS: x\n[exit code 1]").is_some());
        assert!(sign("[no output]\n[killed by signal 31]").is_some());
        assert_eq!(sign("Permission denied\n[exit code 0]"), None, "it succeeded");
        assert_eq!(sign("assertion failed\n[exit code 101]"), None);
        assert_eq!(sign("Permission denied\n[killed by signal 9]"), None);
        assert_eq!(sign("started in the background as `p1`; permission denied"), None);
        assert_eq!(sign(""), None);
        let refused = ["crates.example:443".to_owned()];
        let why = sandbox_sign("failed\n[exit code 1]", &refused).unwrap();
        assert!(why.contains("crates.example:443"), "{why}");
        assert_eq!(sandbox_sign("fine\n[exit code 0]", &refused), None);
    }
}
