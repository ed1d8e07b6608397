//! Limits of children, and the OOM score of children and parent.

mod common;

use common::{TestProcess, run, script, terminal};
use parlor_process::{CHILD_FILE_BYTES, CHILD_OOM_SCORE, CHILD_OPEN_FILES, ProcessNumber, spawn_unconfined};
use tokio::sync::{Mutex, mpsc};

/// Serializes these tests: while a child is started, this process has a raised OOM score.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

const PRINT_LIMITS: &str = "grep -h NoNewPrivs /proc/self/status; cat /proc/self/oom_score_adj; sh -c 'cat /proc/self/oom_score_adj'; \
     ulimit -Hc; ulimit -Hf; ulimit -Hn";

fn own_score() -> i32 {
    let score = std::fs::read_to_string("/proc/self/oom_score_adj").expect("a file of Linux");
    score.trim().parse().expect("a number")
}

#[tokio::test]
async fn children_on_pipes_and_terminals_are_confined() {
    let _serialized = ONE_AT_A_TIME.lock().await;
    let score = (own_score() + CHILD_OOM_SCORE).min(1000);
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let files = files.unwrap_or(u64::MAX).min(CHILD_OPEN_FILES);
    for start in [script(PRINT_LIMITS), terminal(PRINT_LIMITS)] {
        let (process, _) = run(&start).await;
        let output = process.shown().replace('\r', "");
        let size = CHILD_FILE_BYTES / 512;
        assert_eq!(output, format!("NoNewPrivs:\t1\n{score}\n{score}\n0\n{size}\n{files}\n"));
    }
}

#[tokio::test]
async fn an_unconfined_child_has_the_limits_of_its_parent() {
    let _serialized = ONE_AT_A_TIME.lock().await;
    let (sender, mut reports) = mpsc::channel(4);
    let start = script(PRINT_LIMITS);
    let process = spawn_unconfined(&start, ProcessNumber(1), sender).unwrap();
    while reports.recv().await.is_some() {}
    let output = String::from_utf8(process.retained(parlor_vocab::OutputStream::Stdout)).unwrap();
    let score = own_score();
    assert!(output.contains(&format!("{score}\n{score}\n")), "{output}");
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    let own = own.lines().find(|line| line.starts_with("NoNewPrivs")).unwrap();
    assert!(output.starts_with(own), "{output}");
}

/// Starts many children at once from several threads; some fail to start.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_parent_keeps_its_own_score() {
    let _serialized = ONE_AT_A_TIME.lock().await;
    let before = own_score();
    let score = format!("{}\n", (before + CHILD_OOM_SCORE).min(1000));
    let many = (0..40).map(|number| {
        let score = score.clone();
        tokio::spawn(async move {
            let mut start = script("cat /proc/self/oom_score_adj");
            if number % 4 == 0 {
                start.program = "/no/such/program".to_owned();
                assert!(TestProcess::start(&start).is_err());
            } else {
                assert_eq!(run(&start).await.0.shown(), score);
            }
        })
    });
    for one in many.collect::<Vec<_>>() {
        one.await.unwrap();
    }
    assert_eq!(own_score(), before);
}
