//! What transcripts cannot show: what the house does not do by itself, and limits in small.

use parlor_vocab::{AgentId, MediaId, MessageId, UniqueNumber, UserInput as SaidText};

use super::super::MAX_KEY_BYTES;
use super::*;

/// A clock and ids that stand still.
struct Still;

impl Clock for Still {
    fn now(&self) -> Timestamp {
        Timestamp(7)
    }
}

impl IdSource for Still {
    fn next(&self) -> UniqueNumber {
        UniqueNumber(1)
    }
}

fn session() -> SessionId {
    SessionId::parse("desk").unwrap()
}

fn params() -> ConnectionParams {
    ConnectionParams {
        session: session(),
        after: None,
        watch: Vec::new(),
        streams: false,
        may_send: true,
        traceparent: None,
        agents: Arc::new([("a".to_owned(), "A".to_owned())]),
        folder: "/".into(),
        clock: Arc::new(Still),
        ids: Arc::new(Still),
    }
}

/// A machine that watches, having seen so much of what there is.
fn watching(params: ConnectionParams, seen: u64, head: u64) -> SuprMachine {
    let mut machine = SuprMachine::new(params);
    let (_, questions) = drain(&mut machine);
    for (ticket, _) in questions {
        let watching = RegistryReply::Watching { seen: Seq(seen), head: Seq(head) };
        machine.handle(Instant::now(), Input::Answer(ticket, Ok(watching)));
    }
    machine
}

/// The frames and the questions that it has.
fn drain(machine: &mut SuprMachine) -> (Vec<Value>, Vec<(Ticket, RegistryRequest)>) {
    let (mut frames, mut questions) = (Vec::new(), Vec::new());
    while let Some(output) = machine.poll() {
        match output {
            Output::Send(frame) => frames.push(serde_json::from_slice(&frame).unwrap()),
            Output::Request(ticket, command) => questions.push((ticket, command)),
            Output::WakeAt(_) | Output::Close => panic!("{output:?}"),
        }
    }
    (frames, questions)
}

fn say(machine: &mut SuprMachine, frame: &str) {
    machine.handle(Instant::now(), Input::Frame(frame.as_bytes()));
}

fn tell(machine: &mut SuprMachine, seq: u64, event: SessionEvent) -> Vec<Value> {
    let id = EventId::parse(&format!("evt_{seq}")).unwrap();
    let entry = Arc::new(Entry { seq: Seq(seq), id, at: Timestamp(7), event });
    let event = RegistryEvent { session: session(), seen: SessionUpdate::Entry(entry) };
    machine.handle(Instant::now(), Input::Event(&event));
    drain(machine).0
}

fn of_run(sequence: u64, event: RunEvent) -> SessionEvent {
    SessionEvent::Run { run: RunId::parse("run_1").unwrap(), sequence, event }
}

fn started(traceparent: Option<&str>) -> SessionEvent {
    let input = SaidText { traceparent: traceparent.map(str::to_owned), ..SaidText::default() };
    let (agent, message) = (AgentId::parse("a").unwrap(), MessageId::parse("msg_1").unwrap());
    of_run(1, RunEvent::Started { parent: None, agent, model: None, input, message })
}

#[test]
fn only_so_many_frames_wait_and_pings_do_not() {
    let mut machine = watching(params(), 0, 0);
    let stop = r#"{"type":"run.stop"}"#;
    (0..=MAX_WAITING_FRAMES).for_each(|_| {
        assert!(machine.wants_frame());
        say(&mut machine, stop);
    });
    assert!(!machine.wants_frame());
    say(&mut machine, r#"{"type":"ping","id":"p"}"#);
    let (frames, questions) = drain(&mut machine);
    assert_eq!((frames.len(), &frames[0]["id"], questions.len()), (1, &json!("p"), 1));
    machine.handle(Instant::now(), Input::Answer(questions[0].0, Err(SessionRefusal::NoActiveRun)));
    assert!(machine.wants_frame());
}

#[test]
fn frames_that_wait_have_only_so_many_bytes() {
    let mut machine = watching(params(), 0, 0);
    let padded = |bytes: usize| format!("{}{}", r#"{"type":"run.stop"}"#, " ".repeat(bytes - 19));
    say(&mut machine, &padded(19));
    say(&mut machine, &padded(MAX_WAITING_BYTES - 20));
    assert!(machine.wants_frame());
    say(&mut machine, &padded(20));
    assert!(!machine.wants_frame());
}

#[test]
fn a_key_of_the_longest_size_counts_and_a_longer_one_does_not() {
    for (bytes, counts) in [(MAX_KEY_BYTES, true), (MAX_KEY_BYTES + 1, false)] {
        let mut machine = watching(params(), 0, 0);
        let payload = json!({"content": "x", "key": "k".repeat(bytes)});
        say(&mut machine, &json!({"type": "message.send", "payload": payload}).to_string());
        let (_, questions) = drain(&mut machine);
        let RegistryRequest::Session(_, SessionCommand::Send { input, .. }) = &questions[0].1 else {
            panic!()
        };
        assert_eq!(input.key.is_some(), counts);
    }
}

#[test]
fn a_watch_that_is_refused_ends_the_connection() {
    let mut machine = SuprMachine::new(params());
    let (_, questions) = drain(&mut machine);
    let refused = Err(SessionRefusal::LogUnavailable { reason: "full".to_owned() });
    machine.handle(Instant::now(), Input::Answer(questions[0].0, refused));
    assert_eq!(machine.poll(), Some(Output::Close));
}

#[test]
fn files_of_an_answer_are_sent_behind_it() {
    let mut machine = watching(params(), 0, 0);
    tell(&mut machine, 2, started(None));
    let media = |name: &str, mime: &str| Media {
        id: MediaId::parse(name).unwrap(),
        name: name.to_owned(),
        mime: mime.to_owned(),
        size: 2,
    };
    let media = vec![media("a.png", "image/png"), media("gone", "text/plain"), media("b.bin", "x/y")];
    let message = MessageId::parse("msg_2").unwrap();
    let said =
        of_run(2, RunEvent::Message(MessageEvent::Completed { message, text: "look".to_owned(), media }));
    let id = EventId::parse("evt_3").unwrap();
    let entry = Arc::new(Entry { seq: Seq(3), id, at: Timestamp(7), event: said });
    let event = RegistryEvent { session: session(), seen: SessionUpdate::Entry(entry) };
    machine.handle(Instant::now(), Input::Event(&event));
    let (frames, questions) = drain(&mut machine);
    assert_eq!(frames[0]["event_type"], "message.completed");
    let RegistryRequest::ReadMedia { ids, max_bytes } = &questions[0].1 else { panic!("{questions:?}") };
    assert_eq!((ids.len(), *max_bytes), (3, MAX_SENT_MEDIA_BYTES));
    let contents = vec![Some(b"hi".to_vec()), None, Some(Vec::new())];
    machine.handle(Instant::now(), Input::Answer(questions[0].0, Ok(RegistryReply::Contents(contents))));
    let sent = |kind: &str, data: &str, name: &str, mime: &str| {
        json!({"type": "media.create", "session_id": "desk", "timestamp": 7, "payload": {
            "type": kind, "data": data, "filename": name, "content_type": mime, "caption": ""}})
    };
    let expected = [sent("image", "aGk=", "a.png", "image/png"), sent("file", "", "b.bin", "x/y")];
    assert_eq!(drain(&mut machine).0, expected);
}

#[test]
fn what_joins_a_run_and_what_is_taken_from_the_queue_is_told() {
    let mut machine = watching(ConnectionParams { streams: true, ..params() }, 0, 0);
    tell(&mut machine, 2, started(None));
    let input = SaidText { text: "and this".to_owned(), ..SaidText::default() };
    let steered = RunEvent::Steered { input, message: MessageId::parse("msg_2").unwrap() };
    let told = tell(&mut machine, 3, of_run(2, steered));
    let data = json!({"agent_id": "a", "message_id": "msg_2", "role": "user", "text": "and this"});
    assert_eq!((&told[0]["event_type"], &told[0]["data"]), (&json!("message.received"), &data));
    let told = tell(&mut machine, 4, SessionEvent::Unqueued { runs: vec![RunId::parse("run_2").unwrap()] });
    assert_eq!(told[0]["type"], "run.unqueued");
    assert_eq!(told[0]["payload"], json!({"run_ids": ["run_2"]}));
}

#[test]
fn the_trace_of_whoever_asked_is_on_every_event() {
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let mut machine = watching(params(), 0, 0);
    tell(&mut machine, 2, started(Some(trace)));
    let ended = RunEvent::Ended { ending: RunEnding::Completed { message: None }, duration_ms: 1 };
    let told = tell(&mut machine, 3, of_run(2, ended));
    assert_eq!(told[0]["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(told[0]["span_id"], "00f067aa0ba902b7");
    assert_eq!(told[0]["data"]["final_message_id"], "");
    let mut machine = watching(ConnectionParams { traceparent: Some(trace.to_owned()), ..params() }, 0, 0);
    say(&mut machine, r#"{"type":"message.send","payload":{"content":"x"}}"#);
    let RegistryRequest::Session(_, SessionCommand::Send { input, .. }) = drain(&mut machine).1.remove(0).1
    else {
        panic!("it is sent")
    };
    assert_eq!(input.traceparent.as_deref(), Some(trace));
}

#[test]
fn a_session_that_was_deleted_and_made_anew_is_told_as_new() {
    // All ten events of the old one were told again as replay.
    let mut machine = watching(ConnectionParams { after: Some(None), ..params() }, 0, 10);
    assert_eq!(tell(&mut machine, 9, started(None))[0]["replay"], true);
    let renamed = SessionEvent::Renamed { title: "t".to_owned() };
    assert!(tell(&mut machine, 1, renamed.clone()).is_empty());
    assert_eq!(tell(&mut machine, 2, started(None))[0]["replay"], false);
    // None of the old one was told, since all of it was seen.
    let mut machine = watching(params(), 10, 10);
    assert!(tell(&mut machine, 1, renamed).is_empty());
    assert_eq!(tell(&mut machine, 2, started(None))[0]["replay"], false);
}

fn answer(machine: &mut SuprMachine, ticket: Ticket, answer: Result<RegistryReply, SessionRefusal>) {
    machine.handle(Instant::now(), Input::Answer(ticket, answer));
}

/// A machine that fetches the first of two files, and its question.
fn fetching() -> (SuprMachine, Ticket) {
    let mut machine = watching(params(), 0, 0);
    let file = r#"{"type":"image","url":"http://a.example/b"}"#;
    say(&mut machine, &format!(r#"{{"type":"media.send","payload":{{"attachments":[{file},{file}]}}}}"#));
    let (frames, mut questions) = drain(&mut machine);
    assert!(frames.is_empty(), "{frames:?}");
    let (ticket, command) = questions.pop().unwrap();
    assert!(matches!(command, RegistryRequest::Fetch { .. }), "{command:?}");
    (machine, ticket)
}

/// What was asked, if it is one stop.
fn asked_to_stop(machine: &mut SuprMachine) -> Option<Ticket> {
    let (frames, mut questions) = drain(machine);
    assert!(frames.is_empty() && questions.len() <= 1, "{frames:?} {questions:?}");
    let (ticket, command) = questions.pop()?;
    matches!(command, RegistryRequest::Session(_, SessionCommand::Stop { .. })).then_some(ticket)
}

fn wrong_run() -> SessionRefusal {
    let id = |id: &str| RunId::parse(id).unwrap();
    SessionRefusal::WrongRun { asked: id("run_1"), active: id("run_2") }
}

#[test]
fn a_stop_waits_for_no_files() {
    let (mut machine, _) = fetching();
    say(&mut machine, r#"{"type":"run.stop"}"#);
    let stop = asked_to_stop(&mut machine).unwrap();
    answer(&mut machine, stop, Err(wrong_run()));
    assert_eq!(drain(&mut machine).0[0]["payload"]["code"], "run_mismatch");
}

#[test]
fn a_stop_that_finds_nothing_is_for_the_message_before_it() {
    let (mut machine, fetch) = fetching();
    say(&mut machine, r#"{"type":"run.stop"}"#);
    let stop = asked_to_stop(&mut machine).unwrap();
    answer(&mut machine, stop, Err(SessionRefusal::NoActiveRun));
    assert_eq!(asked_to_stop(&mut machine), None);
    // The message comes to nothing, so there is nothing to stop.
    answer(&mut machine, fetch, Ok(RegistryReply::Files(vec![Err(FileError::Unreadable)])));
    let (frames, questions) = drain(&mut machine);
    assert_eq!(frames[0]["payload"]["code"], "media_write_failed");
    answer(&mut machine, questions[0].0, Err(SessionRefusal::NoActiveRun));
    assert_eq!(drain(&mut machine).0[0]["payload"]["code"], "no_active_run");
}

#[test]
fn files_that_take_too_long_are_not_waited_for() {
    let (mut machine, fetch) = fetching();
    let file = NamedFile { name: String::new(), bytes: vec![1] };
    answer(&mut machine, fetch, Ok(RegistryReply::Files(vec![Ok(file)])));
    let (_, questions) = drain(&mut machine);
    let media = Media { id: MediaId::parse("a").unwrap(), name: String::new(), mime: String::new(), size: 1 };
    let later = Instant::now() + FILES_WAIT;
    machine.handle(later, Input::Answer(questions[0].0, Ok(RegistryReply::Stored(vec![media]))));
    let (frames, questions) = drain(&mut machine);
    assert_eq!(frames[0]["payload"]["code"], "media_write_failed");
    assert!(questions.is_empty(), "{questions:?}");
}
