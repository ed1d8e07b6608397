//! Questions of runs in the sandbox: a command that the sandbox made fail is offered once more, and a command waits while a
//! person is asked about a host.

use std::path::Path;
use std::sync::{Arc, Mutex};

use parlor_engine::policy::{PolicySettings, ProjectPolicy, Rule, RuleSource, WhenUnattended};
use parlor_engine::{MAX_HOST_QUESTIONS, ProjectPolicies, SessionUpdate, Sessions};
use parlor_log::{MemoryLog, SystemClock};
use parlor_model::LocalAgent;
use parlor_testkit::folder_outside_tmp;
use parlor_vocab::{
    NewSession, PolicyRule, Question, QuestionAnswer, QuestionEvent, QuestionKind, QuestionOutcome,
    RuleAction, RunEvent, RunId, Seq, SessionCommand, SessionId, SessionReply, ToolEvent, UserInput,
    WhenBusy,
};
use tempfile::TempDir;

use crate::common::{TIMEOUT, deps, new_session, run_event};

/// Remembers answers until the end of the test.
#[derive(Default)]
pub(crate) struct RememberedAnswers(Mutex<Vec<PolicyRule>>);

impl ProjectPolicies for RememberedAnswers {
    fn read(&self, folder: &Path) -> Result<ProjectPolicy, String> {
        Ok(ProjectPolicy { remembered: self.remembered(folder)?, ..ProjectPolicy::default() })
    }

    fn remembered(&self, _: &Path) -> Result<Vec<Rule>, String> {
        let rules = self.0.lock().unwrap();
        Ok(rules.iter().map(|rule| Rule::new(rule.clone(), RuleSource::Remembered, None).unwrap()).collect())
    }

    fn remember(&self, _: &Path, rule: &PolicyRule) -> Result<(), String> {
        self.0.lock().unwrap().push(rule.clone());
        Ok(())
    }
}

/// The registry of a process whose local agent is under the policy.
pub(crate) fn process_with(
    log: &Arc<MemoryLog>,
    settings: PolicySettings,
    answers: &Arc<RememberedAnswers>,
) -> Sessions {
    let settings = PolicySettings { enforces_all: true, ..settings };
    let deps = deps(log, Arc::new(LocalAgent::default()), Arc::new(SystemClock));
    Sessions::new(deps).with_policy(settings, Arc::clone(answers) as _)
}

pub(crate) fn ask(part: &str, value: &str) -> Rule {
    let value = Some(value.to_owned());
    let rule = PolicyRule::new(RuleAction::Ask);
    let rule = match part {
        "tool" => PolicyRule { tool: value, ..rule },
        "host" => PolicyRule { host: value, ..rule },
        other => panic!("{other}"),
    };
    Rule::new(rule, RuleSource::Settings, None).unwrap()
}

/// A session with a project, and a folder beside it that its sandbox cannot write.
struct Project {
    log: Arc<MemoryLog>,
    sessions: Sessions,
    answers: Arc<RememberedAnswers>,
    session: SessionId,
    folder: TempDir,
    outside: TempDir,
}

impl Project {
    async fn with(settings: PolicySettings) -> Self {
        let log = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
        let answers = Arc::new(RememberedAnswers::default());
        let sessions = process_with(&log, settings, &answers);
        // Not in /tmp, which is private in a sandbox.
        let [folder, outside] = [(); 2].map(|()| folder_outside_tmp(env!("CARGO_TARGET_TMPDIR")));
        let new_session = NewSession { folder: folder.path().to_owned(), ..new_session() };
        let session = sessions.create(None, new_session).await.unwrap();
        Self { log, sessions, answers, session, folder, outside }
    }

    async fn send(&self, text: &str, is_attended: bool) -> RunId {
        let input =
            UserInput { text: text.to_owned(), can_answer: true, is_attended, ..UserInput::default() };
        let command = SessionCommand::Send { input, when_busy: WhenBusy::Refuse };
        let reply = self.sessions.execute(&self.session, command).await.unwrap();
        let SessionReply::Started(run) = reply else { panic!("{reply:?}") };
        run
    }

    /// Writes outside of the project, which only works without the sandbox.
    async fn write_outside(&self, is_attended: bool) -> RunId {
        self.send(&format!("!echo made >> {}/made", self.outside.path().display()), is_attended).await
    }

    fn made(&self) -> Option<String> {
        std::fs::read_to_string(self.outside.path().join("made")).ok()
    }

    /// All events of the run until `is_last` returns true for one.
    async fn until(&self, run: &RunId, is_last: impl Fn(&RunEvent) -> bool) -> Vec<RunEvent> {
        let mut watcher = self.sessions.watch(&self.session, Seq::START).await;
        let mut events = Vec::new();
        loop {
            let update: SessionUpdate =
                tokio::time::timeout(TIMEOUT, watcher.next()).await.expect("an update").unwrap();
            let Some((_, _, event)) = run_event(&update, run) else { continue };
            events.push(event.clone());
            if is_last(event) {
                return events;
            }
        }
    }

    async fn end_of(&self, run: &RunId) -> Vec<RunEvent> {
        self.until(run, |event| matches!(event, RunEvent::Ended { .. })).await
    }

    async fn question(&self, run: &RunId) -> Question {
        let is_asked = |event: &RunEvent| matches!(event, RunEvent::Question(QuestionEvent::Asked(_)));
        let events = self.until(run, is_asked).await;
        let Some(RunEvent::Question(QuestionEvent::Asked(question))) = events.last() else { unreachable!() };
        question.clone()
    }

    async fn answer(&self, question: &Question, answer: QuestionAnswer) {
        let command = SessionCommand::AnswerQuestion { question: question.id.clone(), answer, by: None };
        self.sessions.execute(&self.session, command).await.unwrap();
    }
}

fn results(events: &[RunEvent]) -> Vec<&str> {
    let result = |event| {
        if let &RunEvent::Tool(ToolEvent::Completed { ref output, .. }) = event {
            return Some(output.as_str());
        }
        let &RunEvent::Tool(ToolEvent::Failed { ref failure, .. }) = event else { return None };
        Some(failure.message.as_str())
    };
    events.iter().filter_map(result).collect()
}

fn progress(events: &[RunEvent]) -> Vec<&str> {
    let report = |event| {
        let &RunEvent::Tool(ToolEvent::Progressed { ref message, .. }) = event else { return None };
        Some(message.as_str())
    };
    events.iter().filter_map(report).collect()
}

fn questions(events: &[RunEvent]) -> usize {
    let is_asked = |event: &&RunEvent| matches!(event, RunEvent::Question(QuestionEvent::Asked(_)));
    events.iter().filter(is_asked).count()
}

#[tokio::test]
async fn a_command_that_the_sandbox_made_fail_runs_once_more_if_a_person_says_so() {
    let project = Project::with(PolicySettings::default()).await;
    let run = project.write_outside(true).await;
    let question = project.question(&run).await;
    assert_eq!(question.kind, QuestionKind::WiderRights);
    assert!(question.title.contains("once more, without the sandbox"), "{question:?}");
    assert!(question.reason.contains("read-only file system"), "{question:?}");
    assert!(question.detail.starts_with("echo made >> "), "{question:?}");
    assert_eq!((project.made(), question.remembered.as_ref()), (None, None));
    project.answer(&question, QuestionAnswer::AllowOnce).await;
    let events = project.end_of(&run).await;
    assert_eq!(project.made().as_deref(), Some("made\n"), "it ran exactly once more");
    let results = results(&events);
    assert_eq!(results.len(), 1, "the agent gets one result: {results:?}");
    assert!(
        results[0].starts_with("[The command failed in the sandbox. The user has allowed"),
        "{results:?}"
    );
    assert!(results[0].ends_with("[exit code 0]"), "{results:?}");
    assert!(progress(&events).contains(&"Once more, without the sandbox"), "{events:?}");
}

#[tokio::test]
async fn a_refused_offer_leaves_the_first_result() {
    let project = Project::with(PolicySettings::default()).await;
    let run = project.write_outside(true).await;
    let question = project.question(&run).await;
    project.answer(&question, QuestionAnswer::Deny { message: Some("write here".to_owned()) }).await;
    let events = project.end_of(&run).await;
    let results = results(&events);
    assert!(results[0].to_lowercase().contains("read-only file system"), "{results:?}");
    assert!(
        results[0].contains("[It was offered to run it without the sandbox: the user refused"),
        "{results:?}"
    );
    assert!(results[0].contains("write here"), "{results:?}");
    assert_eq!((results.len(), project.made()), (1, None));
}

#[tokio::test]
async fn no_offer_is_made_where_nobody_sees_it_or_the_mode_forbids_it_or_the_command_succeeded() {
    let read_only = PolicySettings { mode: parlor_vocab::PolicyMode::ReadOnly, ..PolicySettings::default() };
    let allowing = PolicySettings { when_unattended: WhenUnattended::Allow, ..PolicySettings::default() };
    for (settings, is_attended) in [(allowing, false), (read_only, true)] {
        let project = Project::with(settings).await;
        let run = project.write_outside(is_attended).await;
        let events = project.end_of(&run).await;
        assert_eq!((questions(&events), project.made()), (0, None));
        assert!(results(&events)[0].to_lowercase().contains("read-only file system"));
    }
    let project = Project::with(PolicySettings::default()).await;
    let run = project.send("!echo permission denied; touch mine", true).await;
    assert_eq!(questions(&project.end_of(&run).await), 0);
    assert!(project.folder.path().join("mine").exists());
}

#[tokio::test]
async fn an_offer_outlives_its_process() {
    for (answer, made) in
        [(QuestionAnswer::AllowOnce, Some("made\n")), (QuestionAnswer::Deny { message: None }, None)]
    {
        let mut project = Project::with(PolicySettings::default()).await;
        let run = project.write_outside(true).await;
        let question = project.question(&run).await;
        project.sessions.close().await;
        project.sessions = process_with(&project.log, PolicySettings::default(), &project.answers);
        project.answer(&question, answer).await;
        let events = project.end_of(&run).await;
        assert_eq!(project.made().as_deref(), made);
        let results = results(&events);
        assert_eq!(results.len(), 1, "{results:?}");
        let expected = if made.is_some() { "[The command failed in the sandbox" } else { "the user refused" };
        assert!(results[0].starts_with(expected), "{results:?}");
        assert_eq!(
            made.is_none(),
            results[0].to_lowercase().contains("read-only file system"),
            "{results:?}"
        );
    }
}

/// A name of this machine, so that no test asks a name server. The proxy refuses its address when the rules have allowed it.
fn own_name() -> String {
    let hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    let lines = hosts.lines().filter(|line| !line.trim_start().starts_with('#'));
    let mut names = lines.flat_map(|line| line.split_whitespace().skip(1));
    let is_usable = |name: &&str| {
        let last = name.rsplit('.').next().unwrap_or_default();
        last != "localhost" && last.starts_with(|first: char| first.is_ascii_alphabetic()) && name.is_ascii()
    };
    names.find(is_usable).unwrap_or("asked.invalid").to_ascii_lowercase()
}

/// Asks the proxy for each host, one after another, and prints its status.
fn fetch(hosts: &[String], seconds: f32) -> String {
    let hosts: Vec<String> = hosts.iter().map(|host| format!("'http://{host}:9/'")).collect();
    format!(
        "!python3 -c \"\nimport urllib.request, urllib.error\nfor url in [{}]:\n    try: urllib.request.urlopen(url, timeout={seconds})\n    except urllib.error.HTTPError as error: print(error.code)\n    except OSError: print('late')\n\"",
        hosts.join(", ")
    )
}

fn asking_for(hosts: &[&str]) -> PolicySettings {
    PolicySettings {
        rules: hosts.iter().map(|host| ask("host", host)).collect(),
        ..PolicySettings::default()
    }
}

#[tokio::test]
async fn a_connection_waits_for_the_answer_about_its_host() {
    let host = own_name();
    for (answer, status) in
        [(QuestionAnswer::AllowOnce, "502"), (QuestionAnswer::Deny { message: None }, "403")]
    {
        let project = Project::with(asking_for(&[&host])).await;
        let run = project.send(&fetch(&[host.clone(), host.clone()], 60.0), true).await;
        let question = project.question(&run).await;
        assert_eq!(question.kind, QuestionKind::Host);
        assert_eq!(question.title, format!("Let the command connect to `{host}:9`"));
        project.answer(&question, answer).await;
        let events = project.end_of(&run).await;
        assert_eq!(questions(&events), 1, "the second connection needs no answer: {events:?}");
        let printed = format!("{status}\n{status}\n[exit code 0]");
        assert_eq!(results(&events), [printed.as_str()]);
        let recorded = progress(&events).iter().filter(|text| text.contains(&format!("{host}:9"))).count();
        assert_eq!(recorded, 1, "{events:?}");
        // An answer for once holds for its run.
        let run = project.send(&fetch(std::slice::from_ref(&host), 60.0), true).await;
        let question = project.question(&run).await;
        project.answer(&question, QuestionAnswer::AllowAlways).await;
        project.end_of(&run).await;
        let run = project.send(&fetch(std::slice::from_ref(&host), 60.0), true).await;
        let events = project.end_of(&run).await;
        assert_eq!((questions(&events), results(&events)), (0, vec!["502\n[exit code 0]"]));
    }
}

#[tokio::test]
async fn a_command_that_ends_before_the_answer_settles_the_question() {
    let host = own_name();
    let project = Project::with(asking_for(&[&host])).await;
    // The request goes on until the command ends, which is when the test has seen the question.
    let fetching = fetch(std::slice::from_ref(&host), 600.0);
    let fetching = fetching.trim_start_matches('!');
    let command = format!("!({fetching}) & until test -e seen; do sleep 0.01; done; echo done");
    let run = project.send(&command, true).await;
    let question = project.question(&run).await;
    std::fs::write(project.folder.path().join("seen"), "").unwrap();
    let events = project.end_of(&run).await;
    assert_eq!(results(&events), ["done\n[exit code 0]"]);
    let settled = RunEvent::Question(QuestionEvent::Settled {
        question: question.id,
        outcome: QuestionOutcome::Expired,
    });
    assert_eq!(events.iter().filter(|event| **event == settled).count(), 1, "{events:?}");
}

#[tokio::test]
async fn the_number_of_hosts_that_a_run_asks_about_is_limited() {
    let project = Project::with(asking_for(&["*.invalid"])).await;
    let hosts: Vec<String> = (0..=MAX_HOST_QUESTIONS).map(|number| format!("h{number}.invalid")).collect();
    let run = project.send(&fetch(&hosts, 60.0), true).await;
    let mut watcher = project.sessions.watch(&project.session, Seq::START).await;
    let mut asked = 0;
    loop {
        let update = tokio::time::timeout(TIMEOUT, watcher.next()).await.expect("an update").unwrap();
        match run_event(&update, &run).map(|(_, _, event)| event) {
            Some(RunEvent::Question(QuestionEvent::Asked(question))) => {
                asked += 1;
                project.answer(question, QuestionAnswer::Deny { message: None }).await;
            }
            Some(RunEvent::Ended { .. }) => break,
            _ => {}
        }
    }
    assert_eq!(asked, MAX_HOST_QUESTIONS);
    let events = project.end_of(&run).await;
    assert!(results(&events)[0].ends_with("403\n[exit code 0]"), "{events:?}");
}

#[tokio::test]
async fn hosts_are_refused_where_nobody_can_be_asked() {
    let host = own_name();
    for (when_unattended, status) in [(WhenUnattended::Deny, "403"), (WhenUnattended::Allow, "502")] {
        let project = Project::with(PolicySettings { when_unattended, ..asking_for(&[&host]) }).await;
        let input = UserInput { text: fetch(std::slice::from_ref(&host), 60.0), ..UserInput::default() };
        let command = SessionCommand::Send { input, when_busy: WhenBusy::Refuse };
        let reply = project.sessions.execute(&project.session, command).await.unwrap();
        let SessionReply::Started(run) = reply else { panic!("{reply:?}") };
        let events = project.end_of(&run).await;
        assert_eq!(
            (questions(&events), results(&events)),
            (0, vec![format!("{status}\n[exit code 0]").as_str()])
        );
        assert!(progress(&events).iter().any(|text| text.contains("nobody can be asked here")), "{events:?}");
    }
}
