//! Sessions that lose their connections.

use parlor_vocab::{
    EnvironmentInfo, FileAction, FollowLinks, ProcessId, ProcessRefusal, ReadOutput, StartProcess,
    StartSequenced, StdioKind,
};
use tokio::time::{advance, pause};

use super::*;

fn id(text: &str) -> ProcessId {
    ProcessId::parse(text).unwrap()
}

fn start(process: &str, script: &str) -> ExecutorRequest {
    let start = StartProcess {
        process: id(process),
        program: "sh".to_owned(),
        args: vec!["-c".to_owned(), script.to_owned()],
        arg0: None,
        folder: "/".into(),
        env: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
        stdio: StdioKind::PipesWithInput,
        retain_bytes: 0,
    };
    ExecutorRequest::StartSequenced(Box::new(StartSequenced {
        start,
        inherit: None,
        intent: None,
        origin: None,
    }))
}

fn read(process: &str, wait: Duration) -> ExecutorRequest {
    ExecutorRequest::ReadOutput(ReadOutput { process: id(process), after: 0, max_bytes: None, wait })
}

fn write(process: &str, text: &str) -> ExecutorRequest {
    let (process, bytes) = (id(process), text.as_bytes().to_vec());
    ExecutorRequest::WriteOnce { process, write_id: text.to_owned(), bytes }
}

/// A connection that numbers its requests from 0, as a door does.
struct Client {
    backend: SessionExecutor,
    next_ticket: u64,
}

impl Client {
    fn connect(sessions: &ExecutorSessions) -> Self {
        Self { backend: sessions.connect(), next_ticket: 0 }
    }

    fn submit(&mut self, request: ExecutorRequest) -> (Ticket, Option<ExecutorAnswer>) {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        (ticket, self.backend.submit(ticket, request))
    }

    /// The answer to a request. Events that come before it are lost.
    async fn ask(&mut self, request: ExecutorRequest) -> Result<ExecutorReply, ExecutorRefusal> {
        let (ticket, answer) = self.submit(request);
        if let Some((answered, answer)) = answer {
            assert_eq!(answered, ticket);
            return answer;
        }
        loop {
            match self.backend.next().await.expect("an answer") {
                Update::Answer(answered, answer) => {
                    assert_eq!(answered, ticket, "an answer to another request");
                    return answer;
                }
                Update::Event(_) => {}
            }
        }
    }

    async fn open(&mut self, resume: Option<&str>) -> Result<EnvironmentInfo, ExecutorRefusal> {
        let resume = resume.map(str::to_owned);
        let reply = self.ask(ExecutorRequest::OpenSession { resume }).await?;
        let ExecutorReply::SessionOpened(info) = reply else { panic!("{reply:?}") };
        Ok(info)
    }

    /// The retained output of a process, as soon as it has `text`.
    async fn output(&mut self, process: &str, text: &str) -> String {
        loop {
            let Ok(ExecutorReply::Output(page)) = self.ask(read(process, Duration::ZERO)).await else {
                panic!("no output")
            };
            let bytes: Vec<u8> = page.chunks.iter().flat_map(|chunk| chunk.bytes.to_vec()).collect();
            let shown = String::from_utf8(bytes).unwrap();
            if shown.contains(text) {
                return shown;
            }
            // Something happens, or the test runs into its timeout.
            self.backend.next().await;
        }
    }
}

#[tokio::test]
async fn a_session_goes_on_over_another_connection() {
    let sessions = ExecutorSessions::default();
    let mut first = Client::connect(&sessions);
    let session = first.open(None).await.unwrap();
    first.ask(start("p", "echo up; while read line; do echo got $line; done")).await.unwrap();
    assert_eq!(first.output("p", "up\n").await, "up\n");

    let mut second = Client::connect(&sessions);
    let refused = second.open(Some(&session.session)).await;
    assert_eq!(refused, Err(ExecutorRefusal::SessionAttached(session.session.clone())));
    drop(first);
    // The refused connection may try again, and finds the same session.
    assert_eq!(second.open(Some(&session.session)).await.as_ref(), Ok(&session));
    second.ask(write("p", "one\n")).await.unwrap();
    assert_eq!(second.output("p", "got one\n").await, "up\ngot one\n");

    // The end of a connection is the same as its loss.
    second.backend.begin_close();
    assert_eq!(second.backend.next().await, None);
    let mut third = Client::connect(&sessions);
    assert_eq!(third.open(Some(&session.session)).await.as_ref(), Ok(&session));
    third.ask(write("p", "two\n")).await.unwrap();
    assert_eq!(third.output("p", "got two\n").await, "up\ngot one\ngot two\n");
    drop(third);
    sessions.close().await;
}

#[tokio::test]
async fn an_answer_to_a_lost_connection_is_not_taken_for_another() {
    let sessions = ExecutorSessions::default();
    let mut client = Client::connect(&sessions);
    let session = client.open(None).await.unwrap().session;
    client.ask(start("p", "exec sleep 300")).await.unwrap();
    for _ in 0..100 {
        // Both are without an answer when the connection is lost.
        client.submit(read("p", Duration::from_secs(60)));
        let action = FileAction::Describe { path: "/".into(), follow: FollowLinks::Yes };
        client.submit(ExecutorRequest::File { action, intent: None });
        drop(client);
        client = Client::connect(&sessions);
        client.open(Some(&session)).await.unwrap();
        // Fails if an answer with the same ticket comes from before.
        let found = FileAction::Canonicalize { path: "/".into() };
        let answer = client.ask(ExecutorRequest::File { action: found, intent: None }).await;
        assert!(
            matches!(answer, Ok(ExecutorReply::File(parlor_vocab::FileReply::Resolved(_)))),
            "{answer:?}"
        );
    }
    drop(client);
    sessions.close().await;
}

#[tokio::test]
async fn after_thirty_seconds_a_session_and_its_processes_are_gone() {
    let sessions = ExecutorSessions::default();
    let mut client = Client::connect(&sessions);
    let session = client.open(None).await.unwrap().session;
    client.ask(start("p", "echo $$; exec sleep 300")).await.unwrap();
    let pid = client.output("p", "\n").await;
    let is_alive = || std::path::Path::new(&format!("/proc/{}", pid.trim())).exists();
    pause();
    drop(client);
    tokio::task::yield_now().await;
    advance(SESSION_KEEP_TIME - Duration::from_millis(1)).await;
    let mut client = Client::connect(&sessions);
    client.open(Some(&session)).await.unwrap();
    assert!(is_alive());
    drop(client);
    tokio::task::yield_now().await;
    advance(SESSION_KEEP_TIME).await;
    sessions.shared.living.subscribe().wait_for(|living| *living == 0).await.unwrap();
    assert!(!is_alive());
    let refused = Client::connect(&sessions).open(Some(&session)).await;
    assert_eq!(refused, Err(ExecutorRefusal::UnknownSession(session)));
}

#[tokio::test]
async fn of_many_sessions_without_a_connection_the_last_are_kept() {
    let sessions = ExecutorSessions::default();
    let mut ids = Vec::new();
    for _ in 0..=MAX_KEPT_SESSIONS {
        ids.push(Client::connect(&sessions).open(None).await.unwrap().session);
    }
    let resume = async |id: &str| Client::connect(&sessions).open(Some(id)).await.map(|_| ());
    assert_eq!(resume(&ids[0]).await, Err(ExecutorRefusal::UnknownSession(ids[0].clone())));
    assert_eq!(resume(&ids[1]).await, Ok(()));
    assert_eq!(resume(&ids[MAX_KEPT_SESSIONS]).await, Ok(()));
    sessions.close().await;
}

#[tokio::test]
async fn the_end_of_the_door_ends_all_sessions() {
    let sessions = ExecutorSessions::default();
    let mut pids = Vec::new();
    let (mut kept, mut attached) = (Client::connect(&sessions), Client::connect(&sessions));
    for client in [&mut kept, &mut attached] {
        client.open(None).await.unwrap();
        client.ask(start("p", "echo $$; exec sleep 300")).await.unwrap();
        pids.push(client.output("p", "\n").await);
    }
    drop(kept);
    // The connection ends only after the door has begun to close.
    tokio::join!(sessions.close(), async {
        tokio::task::yield_now().await;
        drop(attached);
    });
    for pid in pids {
        assert!(!std::path::Path::new(&format!("/proc/{}", pid.trim())).exists());
    }
}

#[tokio::test]
async fn nothing_but_a_session_can_be_asked_for_first() {
    let mut client = Client::connect(&ExecutorSessions::default());
    assert!(client.ask(read("p", Duration::ZERO)).await.is_err());
    client.open(None).await.unwrap();
    let unknown = ExecutorRefusal::Process(ProcessRefusal::UnknownProcess(id("p")));
    assert_eq!(client.ask(read("p", Duration::ZERO)).await, Err(unknown));
    drop(client);
}
