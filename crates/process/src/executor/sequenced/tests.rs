//! The limits of processes with numbered events.

use parlor_vocab::StdioKind;
use tokio::time::{advance, pause};

use super::*;

fn id(text: &str) -> ProcessId {
    ProcessId::parse(text).unwrap()
}

fn start(process: &str, script: &str) -> StartSequenced {
    let start = StartProcess {
        process: id(process),
        program: "sh".to_owned(),
        args: vec!["-c".to_owned(), script.to_owned()],
        arg0: None,
        folder: "/".into(),
        env: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
        stdio: StdioKind::Pipes,
        retain_bytes: 0,
    };
    StartSequenced { start, inherit: None, intent: None, origin: None }
}

fn read(process: &str, after: u64, wait: Duration) -> ReadOutput {
    ReadOutput { process: id(process), after, max_bytes: None, wait }
}

/// Whether a read at once is answered with output.
fn is_known(processes: &mut SequencedProcesses, process: &str) -> bool {
    match processes.read(Ticket(0), read(process, 0, Duration::ZERO)) {
        Some(Ok(_)) => true,
        Some(Err(ExecutorRefusal::Process(ProcessRefusal::UnknownProcess(_)))) => false,
        other => panic!("{other:?}"),
    }
}

/// Waits for the last event of a process.
async fn closed(processes: &mut SequencedProcesses) {
    loop {
        processes.advance().await;
        while let Some(update) = processes.take_update() {
            if matches!(update, Update::Event(ExecutorEvent::SequencedClosed { .. })) {
                return;
            }
        }
    }
}

async fn end(processes: SequencedProcesses) {
    processes.end_all();
    processes.closed().await;
}

#[test]
fn the_last_bytes_are_retained_in_whole_chunks() {
    let mut entry = Entry::new(None);
    for seq in 1..=20 {
        entry.retain(seq, OutputStream::Stdout, vec![b'x'; 100_000]);
    }
    let seqs: Vec<u64> = entry.chunks.iter().map(|chunk| chunk.seq).collect();
    assert_eq!(seqs, (11..=20).collect::<Vec<u64>>());
    assert_eq!(entry.chunk_bytes, 1_000_000);
    // One more byte than the limit drops a whole chunk.
    entry.retain(21, OutputStream::Stdout, vec![b'x'; RETAINED_CHUNK_BYTES - 999_999]);
    assert_eq!(entry.chunks.front().map(|chunk| chunk.seq), Some(12));
}

#[test]
fn the_number_of_retained_chunks_is_limited() {
    let mut entry = Entry::new(None);
    for seq in 1..=RETAINED_CHUNKS as u64 + 5 {
        let mut piece = Vec::with_capacity(64 << 10);
        piece.push(b'x');
        entry.retain(seq, OutputStream::Stdout, piece);
    }
    assert_eq!(entry.chunks.len(), RETAINED_CHUNKS);
    assert_eq!(entry.chunks.front().map(|chunk| chunk.seq), Some(6));
    let allocated: usize = entry.chunks.iter().map(|chunk| chunk.bytes.capacity()).sum();
    assert!(allocated < RETAINED_CHUNK_BYTES, "small chunks hold {allocated} bytes");
}

#[test]
fn a_page_ends_before_the_chunk_that_is_too_much() {
    let mut entry = Entry::new(None);
    for seq in 1..=4 {
        entry.retain(seq, OutputStream::Stdout, vec![b'x'; 10]);
    }
    entry.next_seq = 7;
    let page = |after, max_bytes| {
        let page = entry.page(&ReadOutput { max_bytes, ..read("p", after, Duration::ZERO) });
        (page.chunks.iter().map(|chunk| chunk.seq).collect::<Vec<_>>(), page.next_seq)
    };
    assert_eq!(page(0, None), (vec![1, 2, 3, 4], 7));
    assert_eq!(page(1, Some(20)), (vec![2, 3], 4));
    assert_eq!(page(1, Some(19)), (vec![2], 3));
    assert_eq!(page(1, Some(0)), (vec![2], 3));
    assert_eq!(page(4, Some(0)), (vec![], 7));
    assert_eq!(page(u64::MAX, None), (vec![], 7));
}

#[test]
fn the_last_ids_of_writes_are_remembered() {
    let mut entry = Entry::new(None);
    for number in 0..=WRITE_IDS {
        entry.remember_write(number.to_string());
    }
    assert_eq!(entry.write_ids.len(), WRITE_IDS);
    assert!(!entry.write_ids.contains(&"0".to_owned()));
    assert!(entry.write_ids.contains(&"1".to_owned()));
}

#[tokio::test]
async fn a_process_is_kept_for_30_seconds_after_its_last_event() {
    let mut processes = SequencedProcesses::default();
    processes.start(start("p", "echo out")).unwrap();
    closed(&mut processes).await;
    pause();
    advance(KEPT_PROCESS_TIME - Duration::from_millis(1)).await;
    assert!(is_known(&mut processes, "p"));
    let taken = processes.start(start("p", "echo again"));
    assert_eq!(taken, Err(ProcessRefusal::ProcessExists(id("p")).into()));
    assert!(processes.timer().is_some());
    advance(Duration::from_millis(1)).await;
    processes.on_timer();
    assert!(!is_known(&mut processes, "p"));
    assert_eq!(processes.timer(), None);
    assert_eq!(
        processes.start(start("p", "echo again")),
        Ok(ExecutorReply::SequencedStarted { is_sandboxed: false })
    );
    end(processes).await;
}

#[tokio::test]
async fn of_many_processes_that_have_ended_the_last_are_kept() {
    let mut processes = SequencedProcesses::default();
    for number in 0..=MAX_KEPT_PROCESSES {
        processes.by_id.insert(id(&number.to_string()), Entry::new(None));
        processes.kept.push_back((Instant::now() + KEPT_PROCESS_TIME, id(&number.to_string())));
    }
    assert!(!is_known(&mut processes, "0"));
    assert!(is_known(&mut processes, "1"));
    assert!(is_known(&mut processes, "64"));
}

#[tokio::test]
async fn a_waiting_read_is_answered_at_its_deadline() {
    let mut processes = SequencedProcesses::default();
    processes.start(start("p", "exec sleep 300")).unwrap();
    pause();
    assert_eq!(processes.read(Ticket(1), read("p", 0, Duration::from_secs(5))), None);
    // Longer than any read may wait.
    assert_eq!(processes.read(Ticket(2), read("p", 0, Duration::MAX)), None);
    for (ticket, wait) in [(1, Duration::from_secs(5)), (2, MAX_READ_WAIT)] {
        let deadline = processes.timer().unwrap();
        assert!(deadline - Instant::now() <= wait);
        advance(deadline - Instant::now()).await;
        processes.on_timer();
        let Some(Update::Answer(Ticket(answered), Ok(ExecutorReply::Output(page)))) = processes.take_update()
        else {
            panic!("no answer");
        };
        assert_eq!((answered, page.chunks.len(), page.next_seq, page.is_closed), (ticket, 0, 1, false));
        assert_eq!(processes.take_update(), None);
    }
    end(processes).await;
}

#[tokio::test]
async fn a_read_beyond_the_limit_of_waiting_reads_is_answered_at_once() {
    let mut processes = SequencedProcesses::default();
    processes.start(start("p", "exec sleep 300")).unwrap();
    for ticket in 0..MAX_WAITING_READS as u64 {
        assert_eq!(processes.read(Ticket(ticket), read("p", 0, Duration::from_secs(60))), None);
    }
    assert!(processes.read(Ticket(0), read("p", 0, Duration::from_secs(60))).is_some());
    // All are answered when the process ends.
    processes.end(&id("p"));
    let mut answers = 0;
    while answers < MAX_WAITING_READS {
        processes.advance().await;
        while let Some(update) = processes.take_update() {
            answers += usize::from(matches!(update, Update::Answer(_, Ok(ExecutorReply::Output(_)))));
        }
    }
    end(processes).await;
}
