//! Sessions that the program `synaps` saved: a parent that knows the id goes on with them.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Output;

use rustix::fs::{CWD, Mode, mkfifoat};
use serde_json::{Value, json};

use crate::child::{Child, Home, within_timeout};
use crate::proc_info::peak_memory_kib;

const ID: &str = "20260301-101502-9c1e";

/// The size of a long history.
const LARGE_HISTORY_MIB: usize = 48;

/// How much memory a child may use that does not read this history as a whole.
const MAX_MEMORY_KIB: u64 = 72 << 10;

/// A session file as `synaps` 0.11.1 writes it.
fn saved_session(id: &str) -> Value {
    json!({
        "id": id, "title": "Fix the build", "model": "local", "thinking_level": "high", "system_prompt": "You are Synaps.",
        "created_at": "2026-03-01T10:15:02.123456789Z", "updated_at": "2026-03-01T10:20:00Z",
        "total_input_tokens": 1200, "total_output_tokens": 340, "session_cost": 0.0125, "message_count": 6,
        "api_messages": [
            {"role": "user", "content": "fix it"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "ls"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.c"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "Fixed."}]},
            {"role": "user", "content": [
                {"type": "text", "text": "thanks"},
                {"type": "document", "title": "n.txt", "source": {"type": "text", "media_type": "text/plain", "data": "note"}}]},
            {"role": "assistant", "content": "Welcome."},
            {"role": "user", "content": "more"},
            {"role": "assistant", "content": [{"type": "text", "text": "So"}]},
            {"role": "user", "content": "[Request interrupted by user]"}]
    })
}

/// The folder of saved sessions. The sessions of parlor are elsewhere, as with `PARLOR_HOME`.
fn sessions_folder(home: &Home) -> PathBuf {
    let folder = home.folder().join("base/sessions");
    std::fs::create_dir_all(&folder).expect("the folder can be created");
    folder
}

fn save(home: &Home, id: &str, session: &Value) {
    std::fs::write(sessions_folder(home).join(format!("{id}.json")), session.to_string())
        .expect("the file can be written");
}

async fn start(home: &Home, args: &[&str]) -> Child {
    let mut command = home.command(args);
    command.env("SYNAPS_BASE_DIR", home.folder().join("base"));
    Child::start(command).await
}

/// Runs a child that must not start, and returns the reason.
async fn refusal(home: &Home, args: &[&str]) -> String {
    let mut command = home.command(args);
    command.env("SYNAPS_BASE_DIR", home.folder().join("base")).stdin(std::process::Stdio::null());
    let Output { status, stdout, stderr } =
        within_timeout("the end of the child", command.output()).await.expect("the program starts");
    let stderr = String::from_utf8_lossy(&stderr).into_owned();
    assert_eq!((status.code(), stdout.as_slice()), (Some(1), &b""[..]), "{stderr}");
    stderr
}

async fn end(mut child: Child) {
    child.send(json!({"type": "shutdown"})).await;
    assert_eq!(child.wait_for_exit().await.1.code(), Some(0));
}

#[tokio::test]
async fn a_saved_session_goes_on_under_its_id() {
    let home = Home::new();
    let file = sessions_folder(&home).join(format!("{ID}.json"));
    save(&home, ID, &saved_session(ID));
    let before = std::fs::read(&file).expect("the file");

    let mut child = start(&home, &["--continue", ID]).await;
    assert_eq!((child.session.as_str(), child.model.as_str()), (ID, "local"));
    let response = child.call(json!({"type": "get_messages", "id": "m"})).await;
    let document = json!({"type": "document", "title": "n.txt",
        "source": {"type": "text", "media_type": "text/plain", "data": "note"}});
    let expected = json!([
        {"role": "user", "content": "fix it"},
        {"role": "assistant", "content": [{"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "ls"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.c"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Fixed."}]},
        {"role": "user", "content": [{"type": "text", "text": "thanks"}, document]},
        {"role": "assistant", "content": [{"type": "text", "text": "Welcome."}]},
        {"role": "user", "content": "more"},
        {"role": "assistant", "content": [{"type": "text", "text": "So"}]},
        {"role": "user", "content": "[Request interrupted by user]"},
    ]);
    assert_eq!(response["messages"], expected);
    let stats = child.call(json!({"type": "get_session_stats", "id": "s"})).await;
    let totals = (&stats["input_tokens"], &stats["output_tokens"], &stats["cost"], &stats["message_count"]);
    assert_eq!(totals, (&json!(1200), &json!(340), &json!(0.0125), &json!(9)), "{stats}");
    assert_eq!(child.run_turn("p", "/say on").await, "on");
    end(child).await;

    // The second time the log has it, with what was added; the file is not read any more, and never changes.
    assert_eq!(std::fs::read(&file).expect("the file"), before);
    std::fs::remove_file(&file).expect("the file can be removed");
    let mut again = start(&home, &["--continue", ID]).await;
    assert_eq!(again.session, ID);
    assert_eq!(again.history().await.len(), 11);
    end(again).await;
    let entries = std::fs::read_dir(sessions_folder(&home)).expect("the folder").count();
    assert_eq!(entries, 0, "nothing was written beside the file");
    let again = start(&home, &["--continue", "Fix the build"]).await;
    assert_eq!(again.session, ID, "the title was kept");
}

#[tokio::test]
async fn a_session_is_found_by_its_name_its_chain_and_a_part_of_its_id() {
    let home = Home::new();
    let (old, other) = ("20260101-000000-aaaa", "20260102-000000-bbbb");
    let mut compacted = saved_session(old);
    compacted["compacted_into"] = json!(ID);
    save(&home, old, &compacted);
    let mut named = saved_session(ID);
    named["name"] = json!("build");
    // `synaps` writes the messages behind all members that a list shows.
    let messages = named.as_object_mut().and_then(|session| session.shift_remove("api_messages"));
    named["api_messages"] = messages.expect("messages");
    save(&home, ID, &named);
    save(&home, other, &saved_session(other));
    let chains = home.folder().join("base/chains");
    std::fs::create_dir_all(&chains).expect("the folder can be created");
    std::fs::write(chains.join("main.json"), json!({"head": old}).to_string())
        .expect("the file can be written");
    for (wanted, found) in [("build", ID), ("main", ID), (old, ID), ("bbbb", other), (ID, ID)] {
        let child = start(&home, &["--continue", wanted]).await;
        assert_eq!(child.session, found, "{wanted}");
        end(child).await;
    }
    let reason = refusal(&home, &["--continue", "000000"]).await;
    assert!(reason.contains(old) && reason.contains(other), "{reason}");
    assert!(refusal(&home, &["--continue", "nosuch"]).await.contains("nosuch"));
}

#[tokio::test]
async fn continue_without_a_name_takes_the_last_session() {
    let home = Home::new();
    assert!(refusal(&home, &["--continue"]).await.contains("no session to continue"));
    save(&home, ID, &saved_session(ID));
    let child = start(&home, &["--continue"]).await;
    assert_eq!(child.session, ID);
    end(child).await;
    let mut newer = start(&home, &[]).await;
    newer.run_turn("p", "/say newer").await;
    let session = newer.session.clone();
    end(newer).await;
    let child = start(&home, &["--continue", "--model", "local"]).await;
    assert_eq!(child.session, session);
}

#[tokio::test]
async fn a_journal_and_an_unfinished_answer_are_imported_too() {
    let home = Home::new();
    let mut session = saved_session(ID);
    session["_journal_generation"] = json!("g");
    session["api_messages"] = json!([{"role": "user", "content": "one"}]);
    save(&home, ID, &session);
    let journal = format!(
        "{}\n{}\n{}\n{{\"k\":\"msg\",\"v\":2,\"i\":3,\"m\":{{\"ro",
        json!({"k": "open", "v": 2, "base": 1, "generation": "g"}),
        json!({"k": "msg", "v": 2, "i": 1, "m": {"role": "assistant", "content": "two"}}),
        json!({"k": "msg", "v": 2, "i": 2, "m": {"role": "user", "content": "three"}}),
    );
    let file = |name: &str| sessions_folder(&home).join(format!("{ID}.{name}"));
    std::fs::write(file("journal"), journal).expect("the file can be written");
    std::fs::write(file("turn"), json!({"base_len": 3, "partial_text": "fo"}).to_string())
        .expect("the file can be written");
    let mut child = start(&home, &["--continue", ID]).await;
    let text = |text: &str| json!([{"type": "text", "text": text}]);
    let marker = json!("[Request interrupted: Synaps stopped unexpectedly]");
    let expected = [json!("one"), text("two"), json!("three"), text("fo"), marker];
    assert_eq!(child.history().await, expected);
}

#[tokio::test]
async fn counts_and_totals_do_not_read_the_history() {
    let home = Home::new();
    let mut session = saved_session(ID);
    let text = "x".repeat(1 << 20);
    let turns = LARGE_HISTORY_MIB / 2;
    let turn = || [json!({"role": "user", "content": text}), json!({"role": "assistant", "content": text})];
    session["api_messages"] = (0..turns).flat_map(|_| turn()).collect();
    save(&home, ID, &session);
    end(start(&home, &["--continue", ID]).await).await;

    let mut child = start(&home, &["--continue", ID]).await;
    for command in ["get_state", "get_session_stats"] {
        let response = child.call(json!({"type": command, "id": "c"})).await;
        assert_eq!(response["message_count"], 2 * turns, "{response}");
    }
    child.run_turn("p", "!echo hi").await;
    let response = child.call(json!({"type": "get_session_stats", "id": "c"})).await;
    // The prompt, the call, its result, the answer.
    assert_eq!(response["message_count"], 2 * turns + 4, "{response}");
    assert_eq!(response["input_tokens"], 1200, "{response}");
    let peak = peak_memory_kib(child.pid());
    assert!(peak < MAX_MEMORY_KIB, "{peak} KiB");
    assert_eq!(child.history().await.len(), 2 * turns + 4, "the count is that of the messages");
}

#[tokio::test]
async fn a_file_that_cannot_be_imported_is_refused_with_the_reason() {
    let home = Home::new();
    let folder = sessions_folder(&home);
    let file = |id: &str| folder.join(format!("{id}.json"));
    save(&home, "other", &saved_session("other"));
    symlink(file("other"), file("link")).expect("the link can be created");
    mkfifoat(CWD, file("pipe"), Mode::from_raw_mode(0o600)).expect("the pipe can be created");
    std::fs::create_dir(file("folder")).expect("the folder can be created");
    // A hole in the file: it has the size without taking the space.
    std::fs::File::create(file("large")).and_then(|file| file.set_len((64 << 20) + 1)).expect("a large file");
    std::fs::write(file("text"), "not JSON").expect("the file can be written");
    let mut wrong = saved_session("wrong");
    wrong["total_input_tokens"] = json!("many");
    save(&home, "wrong", &wrong);
    let mut circle = saved_session("circle");
    circle["compacted_into"] = json!("circle");
    save(&home, "circle", &circle);
    let mut outside = saved_session("outside");
    outside["compacted_into"] = json!("../../secret");
    save(&home, "outside", &outside);
    for (id, reason) in [
        ("link", "no session"),
        ("pipe", "no session"),
        ("folder", "no session"),
        ("../sessions/other", "no session"),
        ("large", "67108865 bytes, and the limit is 67108864"),
        ("text", "text.json"),
        ("wrong", "expected u64"),
        ("circle", "in a circle"),
        ("outside", "no valid successor"),
    ] {
        let stderr = refusal(&home, &["--continue", id]).await;
        assert!(stderr.contains(reason), "{id}: {stderr}");
    }
    // A refused import records nothing, so the repaired file can be imported.
    save(&home, "wrong", &saved_session("wrong"));
    assert_eq!(start(&home, &["--continue", "wrong"]).await.session, "wrong");
}

#[tokio::test]
async fn messages_of_wrong_types_are_left_out() {
    let home = Home::new();
    let mut session = saved_session(ID);
    session["api_messages"] = json!([7, {"role": "user", "content": {"a": 1}}, {"role": "user", "content": "kept"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": 7, "name": "bash", "input": {}}, {"type": "text", "text": "yes"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "never called", "content": "x"}]}]);
    save(&home, ID, &session);
    let mut child = start(&home, &["--continue", ID]).await;
    assert_eq!(child.history().await, [json!("kept"), json!([{"type": "text", "text": "yes"}])]);
    assert_eq!(child.run_turn("p", "/say on").await, "on");
}

#[tokio::test]
async fn a_key_in_the_output_of_a_tool_is_not_imported() {
    const KEY: &str = "sk-0123456789abcdef0123456789abcdef";
    let home = Home::new();
    let mut session = saved_session(ID);
    session["api_messages"][2]["content"][0]["content"] = json!(format!("OPENAI_API_KEY={KEY}"));
    save(&home, ID, &session);
    let mut command = home.command(&["--continue", ID]);
    command.env("SYNAPS_BASE_DIR", home.folder().join("base")).env("OPENAI_API_KEY", KEY);
    let mut child = Child::start(command).await;
    let history = format!("{:?}", child.history().await);
    assert!(history.contains("OPENAI_API_KEY=") && !history.contains(KEY), "{history}");
}

#[tokio::test]
async fn a_session_that_a_synaps_process_has_open_is_refused() {
    use rustix::fs::{FlockOperation, flock};
    let home = Home::new();
    save(&home, ID, &saved_session(ID));
    let lock = sessions_folder(&home).join(format!("{ID}.lock"));
    let lock = std::fs::File::create(lock).expect("the file can be created");
    flock(&lock, FlockOperation::NonBlockingLockExclusive).expect("nobody else has the lock");
    assert!(refusal(&home, &["--continue", ID]).await.contains("open in another process"));
    drop(lock);
    assert_eq!(start(&home, &["--continue", ID]).await.session, ID);
}
