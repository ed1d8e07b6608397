//! Asks the user at the terminal about a tool call, and sends the answer to the session.

use std::io::BufRead;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parlor_engine::{Sessions, escaped};
use parlor_vocab::{
    Question, QuestionAnswer, QuestionEvent, QuestionId, QuestionOutcome, RunEvent, Sender, SessionCommand,
    SessionEvent, SessionId, SessionUpdate,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::task::JoinHandle;

use super::exchange::DOOR;

/// How often the reader of the terminal looks whether the question is still open.
const LOOK_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// The longest line that is read as an answer.
const MAX_LINE_BYTES: u64 = 4096;

/// Asks the questions of a run, one at a time.
pub(super) struct Asker {
    sessions: Arc<Sessions>,
    session: SessionId,
    /// The question that the user is being asked, and the task that reads the answer.
    asked: Option<(QuestionId, JoinHandle<()>)>,
    is_over: Arc<AtomicBool>,
}

impl Asker {
    pub(super) fn new(sessions: &Arc<Sessions>, session: &SessionId) -> Self {
        let (sessions, session) = (Arc::clone(sessions), session.clone());
        Self { sessions, session, asked: None, is_over: Arc::default() }
    }

    /// What to tell the user about this update: the question, or what somebody else answered. Begins to read the answer.
    pub(super) fn notice(&mut self, update: &SessionUpdate) -> Option<String> {
        match question_event(update)? {
            QuestionEvent::Asked(question) => {
                self.ask(question.clone());
                Some(question_text(question))
            }
            QuestionEvent::Settled { question, outcome } => {
                self.asked.take_if(|(asked, _)| asked == question)?;
                self.is_over.store(true, Ordering::Relaxed);
                settled_elsewhere(outcome)
            }
        }
    }

    fn ask(&mut self, question: Question) {
        self.is_over.store(true, Ordering::Relaxed);
        self.is_over = Arc::default();
        let (sessions, session, is_over) =
            (Arc::clone(&self.sessions), self.session.clone(), Arc::clone(&self.is_over));
        let id = question.id.clone();
        let task = tokio::spawn(async move {
            loop {
                let is_over = Arc::clone(&is_over);
                let line = tokio::task::spawn_blocking(move || read_line(&is_over)).await;
                let Some(line) = line.ok().flatten() else { return };
                let Some(answer) = parse_answer(&line, question.remembered.is_some()) else { continue };
                let (question, by) = (question.id.clone(), Some(Sender::at(DOOR)));
                let command = SessionCommand::AnswerQuestion { question, answer, by };
                // If somebody else was faster, the update of the session says so.
                let _ = sessions.execute(&session, command).await;
                return;
            }
        });
        self.asked = Some((id, task));
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some((_, task)) = &self.asked {
            task.abort();
        }
    }
}

/// Reads a line from the terminal. `None` when the question is over, or at the end of the input.
fn read_line(is_over: &AtomicBool) -> Option<String> {
    let stdin = std::io::stdin();
    while !is_over.load(Ordering::Relaxed) {
        let mut fds = [PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&LOOK_INTERVAL)) {
            Ok(1..) => {
                let mut line = String::new();
                let mut limited = std::io::Read::take(stdin.lock(), MAX_LINE_BYTES);
                return (limited.read_line(&mut line).ok()? > 0).then_some(line);
            }
            Ok(_) => {}
            Err(_) => return None,
        }
    }
    None
}

/// The event of a question in this update, if there is one.
fn question_event(update: &SessionUpdate) -> Option<&QuestionEvent> {
    let SessionUpdate::Entry(entry) = update else { return None };
    let SessionEvent::Run { event: RunEvent::Question(event), .. } = &entry.event else { return None };
    Some(event)
}

/// The question as people read it. The lines of the detail are indented, so that none of them looks like the question's own.
pub(super) fn question_text(question: &Question) -> String {
    let always = if question.remembered.is_some() { "a: always in this project, " } else { "" };
    let detail: Vec<String> = question.detail.lines().map(|line| format!("  {}", escaped(line))).collect();
    format!(
        "The agent asks: {}?\n{}\n({})\ny: yes, this time, {always}n: no; n and a word: tell the agent why not",
        escaped(&question.title),
        detail.join("\n"),
        escaped(&question.reason)
    )
}

/// The answer in a line; `None` if the line is none.
fn parse_answer(line: &str, offers_always: bool) -> Option<QuestionAnswer> {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    match word.to_ascii_lowercase().as_str() {
        "y" | "yes" if rest.is_empty() => Some(QuestionAnswer::AllowOnce),
        "a" | "always" if rest.is_empty() && offers_always => Some(QuestionAnswer::AllowAlways),
        "n" | "no" => Some(QuestionAnswer::Deny { message: (!rest.is_empty()).then(|| rest.to_owned()) }),
        _ => None,
    }
}

fn settled_elsewhere(outcome: &QuestionOutcome) -> Option<String> {
    match outcome {
        QuestionOutcome::Answered { by: Some(by), .. } if by.door == DOOR => None,
        QuestionOutcome::Answered { answer, by } => {
            let by = by.as_ref().map_or("another client", |by| by.client.as_ref().unwrap_or(&by.door));
            Some(format!("{} has answered: {}", escaped(by), answer.as_str()))
        }
        QuestionOutcome::Expired => Some("Nobody answered in time, so the call is refused.".to_owned()),
        QuestionOutcome::Withdrawn => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_cannot_be_forged_by_what_it_is_about() {
        let question = Question {
            id: QuestionId::parse("q").unwrap(),
            kind: parlor_vocab::QuestionKind::Call,
            call: parlor_vocab::ToolCallId::parse("c").unwrap(),
            tool: "shell".to_owned(),
            title: "Run `rm\u{1b}[8m`".to_owned(),
            reason: "a rule\u{202e}\nsays so".to_owned(),
            detail: "rm -r /\u{1b}[1A\u{1b}[2K\rls\n(harmless)\ny: yes\u{200b}".to_owned(),
            remembered: None,
            is_repeatable: false,
        };
        let text = question_text(&question);
        assert!(text.chars().all(|letter| letter == '\n' || !letter.is_control()), "{text:?}");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..5],
            [
                "The agent asks: Run `rm\\u{1b}[8m`?",
                "  rm -r /\\u{1b}[1A\\u{1b}[2K\\rls",
                "  (harmless)",
                "  y: yes\\u{200b}",
                "(a rule\\u{202e}\\nsays so)",
            ]
        );
        assert_eq!(lines.len(), 6);
    }

    #[test]
    fn only_clear_answers_are_taken() {
        assert_eq!(parse_answer("y\n", true), Some(QuestionAnswer::AllowOnce));
        assert_eq!(parse_answer("Always", true), Some(QuestionAnswer::AllowAlways));
        assert_eq!(parse_answer("a", false), None);
        assert_eq!(parse_answer("n", true), Some(QuestionAnswer::Deny { message: None }));
        let message = Some("use the test server".to_owned());
        assert_eq!(parse_answer(" n use the test server ", true), Some(QuestionAnswer::Deny { message }));
        for unclear in ["", "maybe", "yes please", "always x", "ny"] {
            assert_eq!(parse_answer(unclear, true), None, "{unclear}");
        }
    }
}
