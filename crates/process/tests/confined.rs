//! What every child is held to, and what its parent keeps.

mod common;

use common::{Watched, run, script, terminal};
use parlor_process::{CHILD_FILE_BYTES, CHILD_OOM_SCORE, CHILD_OPEN_FILES, ProcessNumber, spawn_for_person};
use tokio::sync::{Mutex, mpsc};

/// While a child is made, its score is ours: one test at a time, so that each sees its own.
static ALONE: Mutex<()> = Mutex::const_new(());

const TELL: &str = "grep -h NoNewPrivs /proc/self/status; cat /proc/self/oom_score_adj; sh -c 'cat /proc/self/oom_score_adj'; \
     ulimit -Hc; ulimit -Hf; ulimit -Hn";

fn own_score() -> i32 {
    let score = std::fs::read_to_string("/proc/self/oom_score_adj").expect("Linux has it");
    score.trim().parse().expect("a number")
}

#[tokio::test]
async fn children_on_pipes_and_terminals_are_confined() {
    let _alone = ALONE.lock().await;
    let score = (own_score() + CHILD_OOM_SCORE).min(1000);
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let files = files.unwrap_or(u64::MAX).min(CHILD_OPEN_FILES);
    for start in [script(TELL), terminal(TELL)] {
        let (watched, _) = run(&start).await;
        let told = watched.shown().replace('\r', "");
        let size = CHILD_FILE_BYTES / 512;
        assert_eq!(told, format!("NoNewPrivs:\t1\n{score}\n{score}\n0\n{size}\n{files}\n"));
    }
}

#[tokio::test]
async fn a_program_of_the_person_is_as_free_as_we_are() {
    let _alone = ALONE.lock().await;
    let (sender, mut reports) = mpsc::channel(4);
    let start = script(TELL);
    let process = spawn_for_person(&start, ProcessNumber(1), sender).unwrap();
    while reports.recv().await.is_some() {}
    let told = String::from_utf8(process.retained(parlor_vocab::OutputStream::Stdout)).unwrap();
    let score = own_score();
    assert!(told.contains(&format!("{score}\n{score}\n")), "{told}");
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    let own = own.lines().find(|line| line.starts_with("NoNewPrivs")).unwrap();
    assert!(told.starts_with(own), "{told}");
}

/// Many are started at once from several threads, and some cannot be started at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn we_keep_our_own_score_whatever_happens_to_children() {
    let _alone = ALONE.lock().await;
    let before = own_score();
    let score = format!("{}\n", (before + CHILD_OOM_SCORE).min(1000));
    let many = (0..40).map(|number| {
        let score = score.clone();
        tokio::spawn(async move {
            let mut start = script("cat /proc/self/oom_score_adj");
            if number % 4 == 0 {
                start.program = "/no/such/program".to_owned();
                assert!(Watched::start(&start).is_err());
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
