//! A connection to each door, from its beginning to the frame that is measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parlor_doors::exec::ExecMachine;
use parlor_doors::loaf::{LoafMachine, Server};
use parlor_doors::supex::{BridgeMachine, ReplMachine};
use parlor_doors::supr::{ConnectionParams, SuprMachine};
use parlor_doors::synaps::{Child, SynapsMachine};
use parlor_doors::{Input, Machine, Output};
use parlor_vocab::{
    AgentChoice, Clock, Credentials, IdSource, NewSession, Preferences, RubyReply, RubyRequest, Seq,
    SessionId, Timestamp, UniqueNumber,
};

struct Counter(AtomicU64);

impl Clock for Counter {
    fn now(&self) -> Timestamp {
        Timestamp(1)
    }
}

impl IdSource for Counter {
    fn next(&self) -> UniqueNumber {
        UniqueNumber(self.0.fetch_add(1, Ordering::Relaxed).into())
    }
}

fn counter() -> Arc<Counter> {
    Arc::new(Counter(AtomicU64::new(0)))
}

/// Hands a frame over, and takes out one after another what the machine wants.
fn say(machine: &mut impl Machine, frame: &[u8]) {
    machine.handle(Instant::now(), Input::Frame(frame));
    while machine.poll().is_some() {}
}

pub(crate) fn supr(frame: &[u8]) {
    let counter = counter();
    let mut machine = SuprMachine::new(ConnectionParams {
        session: SessionId::parse("s").expect("a short text"),
        after: None,
        watch: Vec::new(),
        streams: false,
        may_send: true,
        traceparent: None,
        agents: Arc::new([("a".to_owned(), "A".to_owned())]),
        folder: "/".into(),
        clock: Arc::clone(&counter) as _,
        ids: counter,
    });
    while machine.poll().is_some() {}
    say(&mut machine, frame);
}

pub(crate) fn loaf(frame: &[u8]) {
    let counter = counter();
    let (model, provider, thinking, route) = Default::default();
    let mut machine = LoafMachine::new(Server {
        folder: "/".into(),
        user_home: None,
        chats: "/chats".into(),
        kept: Preferences { model, provider, reasoning: thinking, route, setup_done: false },
        offers: Vec::new(),
        logins: Credentials::default(),
        skill_folders: Vec::new(),
        skills: 0,
        tools: Vec::new(),
        clock: Arc::clone(&counter) as _,
        ids: counter,
    });
    while machine.poll().is_some() {}
    say(&mut machine, frame);
}

pub(crate) fn synaps(frame: &[u8]) {
    let (choice, folder) = (AgentChoice::default(), "/".into());
    let (title, system, forked_from) = (None, None, None);
    let mut machine = SynapsMachine::new(Child {
        session: SessionId::parse("s").expect("a short text"),
        head: Seq(1),
        new_session: NewSession { title, door: "synaps".to_owned(), folder, choice, system, forked_from },
        default_model: "m".to_owned(),
        models: Vec::new(),
        tools: Vec::new(),
    });
    while machine.poll().is_some() {}
    say(&mut machine, frame);
}

const HELLO: &[u8] =
    br#"{"jsonrpc":"2.0","id":0,"method":"hello","params":{"name":"n","version":"v","agent":"a","pid":1}}"#;

/// As the first line of a connection, and as one behind `hello`.
fn twice<M>(frame: &[u8], machine: impl Fn() -> M)
where
    M: Machine<Request = RubyRequest, Reply = Arc<RubyReply>, Event = ()>,
{
    say(&mut machine(), frame);
    let mut identified = machine();
    identified.handle(Instant::now(), Input::Frame(HELLO));
    while let Some(output) = identified.poll() {
        if let Output::Request(ticket, _) = output {
            let opened = RubyReply::ConsoleOpened { session: "s".to_owned() };
            identified.handle(Instant::now(), Input::Answer(ticket, Ok(Arc::new(opened))));
        }
    }
    say(&mut identified, frame);
}

pub(crate) fn bridge(frame: &[u8]) {
    twice(frame, || BridgeMachine::new(None, "one".into(), Instant::now()));
}

pub(crate) fn repl(frame: &[u8]) {
    twice(frame, || ReplMachine::new(None));
}

pub(crate) fn exec(frame: &[u8]) {
    let mut machine = ExecMachine::default();
    say(&mut machine, frame);
    let mut machine = ExecMachine::default();
    say(&mut machine, br#"{"id":0,"method":"initialize","params":{"clientName":"c"}}"#);
    say(&mut machine, frame);
}
