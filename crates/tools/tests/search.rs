//! Listing folders and searching files.

mod common;

use parlor_vocab::FailureCode;
use std::fs;
use std::os::unix::fs::symlink;

use common::Desk;
use parlor_tools::{GREP_CONTEXT, GREP_FILE_BYTES, GREP_MATCHES, GREP_MATCHES_MAX, GREP_OUTPUT_BYTES};
use parlor_tools::{GREP_PATTERN_BYTES, LIST_DEPTH_MAX, LIST_ENTRIES, LIST_ENTRIES_MAX};
use serde_json::json;

#[tokio::test]
async fn a_listing_is_sorted_and_tells_kinds_and_sizes() {
    let desk = Desk::new();
    desk.file("b.txt", "12345");
    desk.file("a/inner.txt", "1");
    desk.file("with\nnewline", "");
    symlink("/etc/passwd", desk.inside("link")).unwrap();
    let top = desk.context.folder.display().to_string();
    assert_eq!(
        desk.text("list_dir", json!({})).await,
        format!("{top} (4 entries)\na/\nb.txt  5\nlink -> /etc/passwd\nwith\\nnewline  0\n")
    );
    assert_eq!(
        desk.text("list_dir", json!({"path": "a", "depth": 3})).await,
        format!("{top}/a (1 entry)\ninner.txt  1\n")
    );
    let deep = desk.text("list_dir", json!({"depth": 2})).await;
    assert!(deep.contains("\na/\na/inner.txt  1\nb.txt"), "{deep}");
    let (code, message) = desk.fail("list_dir", json!({"path": "b.txt"})).await;
    assert_eq!((code, message.as_str()), (FailureCode::Unsupported, "`b.txt` is not a folder"));
    assert_eq!(desk.fail("list_dir", json!({"path": "missing"})).await.0, FailureCode::NotFound);
}

#[tokio::test]
async fn a_listing_that_is_cut_names_what_is_missing_and_prefers_what_is_near() {
    let desk = Desk::new();
    for number in 0..5 {
        desk.file(&format!("deep/{number}"), "");
        desk.file(&format!("z{number}"), "");
    }
    let text = desk.text("list_dir", json!({"depth": 2, "limit": 7})).await;
    assert!(text.contains("z4") && text.contains("deep/0"), "{text}");
    assert!(!text.contains("deep/1"), "{text}");
    assert!(text.ends_with("[cut at the limit of 7 entries: not all of `deep`]\n"), "{text}");
    let text = desk.text("list_dir", json!({"depth": 2, "limit": 3})).await;
    assert!(text.ends_with("[cut at the limit of 3 entries: not all of `.`, `deep`]\n"), "{text}");
    let text = desk.text("list_dir", json!({"depth": 2, "limit": 11})).await;
    assert!(!text.contains("cut"), "{text}");
}

#[tokio::test]
async fn the_limits_of_a_listing_have_defaults_and_caps() {
    let desk = Desk::new();
    for number in 0..=LIST_ENTRIES {
        fs::write(desk.inside(&format!("{number}")), "").unwrap();
    }
    let text = desk.text("list_dir", json!({})).await;
    assert!(text.contains(&format!("({LIST_ENTRIES} entries)")), "{text}");
    assert!(!desk.text("list_dir", json!({"limit": LIST_ENTRIES_MAX})).await.contains("cut"));
    for input in
        [json!({"limit": LIST_ENTRIES_MAX + 1}), json!({"depth": LIST_DEPTH_MAX + 1}), json!({"depth": 0})]
    {
        assert_eq!(desk.fail("list_dir", input).await.0, FailureCode::InvalidInput);
    }
}

#[tokio::test]
async fn a_tree_with_more_folders_than_descriptors_can_be_listed() {
    let desk = Desk::new();
    for number in 0..2000 {
        fs::create_dir(desk.inside(&format!("{number}"))).unwrap();
    }
    let text = desk.text("list_dir", json!({"depth": 2, "limit": LIST_ENTRIES_MAX})).await;
    assert!(text.contains("(2000 entries)") && !text.contains("cannot"), "{}", text.lines().last().unwrap());
}

#[tokio::test]
async fn a_search_shows_where_and_leaves_out_what_git_would() {
    let desk = Desk::new();
    desk.file(".gitignore", "target/\n*.log\n");
    desk.file("src/a.rs", "one needle\ntwo\n");
    desk.file("src/b.txt", "needle\n");
    desk.file("target/out.rs", "needle\n");
    desk.file("x.log", "needle\n");
    desk.file(".git/config", "needle\n");
    desk.file(".hidden", "needle\n");
    desk.file("binary", b"needle\n\0");
    assert_eq!(
        desk.text("grep_files", json!({"pattern": "needle"})).await,
        ".hidden:1:needle\nsrc/a.rs:1:one needle\nsrc/b.txt:1:needle\n[3 matching lines in 3 files, of 5 searched]\n"
    );
    let text = desk.text("grep_files", json!({"pattern": "needle", "include_ignored": true})).await;
    assert!(
        text.contains("target/out.rs:1") && text.contains("x.log:1") && !text.contains(".git/"),
        "{text}"
    );
    // In a folder below, the rules from above count as well.
    desk.file("src/y.log", "needle\n");
    let text = desk.text("grep_files", json!({"pattern": "needle", "path": "src"})).await;
    assert_eq!(
        text,
        "src/a.rs:1:one needle\nsrc/b.txt:1:needle\n[2 matching lines in 2 files, of 2 searched]\n"
    );
    // What is named is searched, whatever the rules say.
    let text = desk.text("grep_files", json!({"pattern": "needle", "path": "target"})).await;
    assert!(text.starts_with("target/out.rs:1:needle\n"), "{text}");
    let text = desk.text("grep_files", json!({"pattern": "needle", "path": "x.log"})).await;
    assert!(text.starts_with("x.log:1:needle\n"), "{text}");
}

#[tokio::test]
async fn globs_case_and_context() {
    let desk = Desk::new();
    desk.file("a.rs", "1\n2\nNeedle\n4\n5\n");
    desk.file("sub/b.rs", "needle\n");
    desk.file("c.md", "needle\n");
    let text = desk.text("grep_files", json!({"pattern": "needle", "glob": "*.rs"})).await;
    assert!(text.starts_with("sub/b.rs:1:needle\n[1 matching line in 1 file, of 2 searched]"), "{text}");
    let text = desk.text("grep_files", json!({"pattern": "needle", "glob": "!*.md"})).await;
    assert!(!text.contains("c.md") && text.contains("sub/b.rs"), "{text}");
    let text = desk
        .text(
            "grep_files",
            json!({"pattern": "^NEEDLE$", "ignore_case": true, "context": 1, "glob": "/a.rs"}),
        )
        .await;
    assert!(text.starts_with("a.rs-2-2\na.rs:3:Needle\na.rs-4-4\n[1 matching"), "{text}");
    let text = desk.text("grep_files", json!({"pattern": "absent"})).await;
    assert_eq!(text, "[0 matching lines in 0 files, of 3 searched]\n");
    for input in [
        json!({"pattern": "("}),
        json!({"pattern": "x", "glob": "{a"}),
        json!({"pattern": "x", "context": GREP_CONTEXT + 1}),
        json!({"pattern": "x", "limit": GREP_MATCHES_MAX + 1}),
        json!({"pattern": "x".repeat(GREP_PATTERN_BYTES + 1)}),
        json!({"pattern": "\\w{1000}{1000}"}),
    ] {
        assert_eq!(desk.fail("grep_files", input.clone()).await.0, FailureCode::InvalidInput, "{input}");
    }
    desk.text("grep_files", json!({"pattern": "x".repeat(GREP_PATTERN_BYTES), "context": GREP_CONTEXT}))
        .await;
}

#[tokio::test]
async fn a_search_ends_at_its_limits_and_says_so() {
    let desk = Desk::new();
    desk.file("a", "x\n".repeat(GREP_MATCHES));
    let text = desk.text("grep_files", json!({"pattern": "x"})).await;
    assert!(text.contains(&format!("[{GREP_MATCHES} matching lines")) && !text.contains("more"), "{text}");
    desk.file("b", "x\n");
    let text = desk.text("grep_files", json!({"pattern": "x"})).await;
    assert!(text.contains("[there is more: 100 matches are the limit of this call; narrow"), "{text}");

    desk.file("c", format!("{}\n", "long ".repeat(80)).repeat(2000));
    let text = desk.text("grep_files", json!({"pattern": "long", "limit": GREP_MATCHES_MAX})).await;
    assert!(text.contains("[there is more: 262144 bytes are the limit"), "{}", text.len());
    assert!(text.len() < GREP_OUTPUT_BYTES + 2000);

    let huge = fs::File::create(desk.inside("huge")).unwrap();
    std::io::Write::write_all(&mut &huge, &[b'\n'; 9000]).unwrap();
    huge.set_len(GREP_FILE_BYTES as u64 + 1).unwrap();
    let text = desk.text("grep_files", json!({"pattern": "none of them"})).await;
    assert!(text.contains(&format!("[left out: 1, larger than {GREP_FILE_BYTES} bytes]")), "{text}");
}

#[tokio::test]
async fn a_search_follows_no_link() {
    let desk = Desk::new();
    fs::write(desk.outside("secret"), "needle\n").unwrap();
    symlink(desk.outside("secret"), desk.inside("file")).unwrap();
    symlink(desk.outside(""), desk.inside("folder")).unwrap();
    symlink(".", desk.inside("loop")).unwrap();
    let fifo = rustix::fs::FileType::Fifo;
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, desk.inside("fifo"), fifo, mode, 0).unwrap();
    desk.file("own", "needle\n");
    let text = desk.text("grep_files", json!({"pattern": "needle"})).await;
    assert_eq!(text, "own:1:needle\n[1 matching line in 1 file, of 1 searched]\n");
    assert_eq!(
        desk.fail("grep_files", json!({"pattern": "x", "path": "fifo"})).await.0,
        FailureCode::Unsupported
    );
    // Named, a link is followed as far as the policy goes.
    let text = desk.text("grep_files", json!({"pattern": "needle", "path": "loop"})).await;
    assert!(text.starts_with("loop/own:1:needle\n"), "{text}");
}

#[tokio::test]
async fn a_very_deep_tree_ends() {
    let desk = Desk::new();
    let mut path = desk.inside("");
    for _ in 0..80 {
        path.push("d");
    }
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("file"), "needle\n").unwrap();
    let text = desk.text("grep_files", json!({"pattern": "needle"})).await;
    assert!(text.contains("[left out: 1, deeper than 64 levels]"), "{text}");
}
