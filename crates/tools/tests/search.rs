//! The tools `list_dir` and `grep_files` on real folders.

mod common;

use parlor_vocab::FailureCode;
use std::borrow::Cow;
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;

use common::Fixture;
use parlor_tools::Redact;
use parlor_tools::{
    GLOB_BRACE_DEPTH, GLOB_BYTES, GREP_PATTERN_BYTES, IGNORE_FILE_BYTES, LIST_DEPTH_MAX, LIST_ENTRIES,
    LIST_ENTRIES_MAX,
};
use parlor_tools::{GREP_CONTEXT, GREP_FILE_BYTES, GREP_MATCHES, GREP_MATCHES_MAX, GREP_OUTPUT_BYTES};
use serde_json::json;

#[tokio::test]
async fn a_listing_is_sorted_and_shows_kinds_and_sizes() {
    let fixture = Fixture::new();
    fixture.file("b.txt", "12345");
    fixture.file("a/inner.txt", "1");
    fixture.file("with\nnewline", "");
    symlink("/etc/passwd", fixture.inside("link")).unwrap();
    let top = fixture.context.folder.display().to_string();
    assert_eq!(
        fixture.text("list_dir", json!({})).await,
        format!("{top} (4 entries)\na/\nb.txt  5\nlink -> /etc/passwd\nwith\\nnewline  0\n")
    );
    assert_eq!(
        fixture.text("list_dir", json!({"path": "a", "depth": 3})).await,
        format!("{top}/a (1 entry)\ninner.txt  1\n")
    );
    let deep = fixture.text("list_dir", json!({"depth": 2})).await;
    assert!(deep.contains("\na/\na/inner.txt  1\nb.txt"), "{deep}");
    let (code, message) = fixture.fail("list_dir", json!({"path": "b.txt"})).await;
    assert_eq!((code, message.as_str()), (FailureCode::Unsupported, "`b.txt` is not a folder"));
    assert_eq!(fixture.fail("list_dir", json!({"path": "missing"})).await.0, FailureCode::NotFound);
}

#[tokio::test]
async fn a_truncated_listing_names_incomplete_folders_and_drops_the_deepest() {
    let fixture = Fixture::new();
    for number in 0..5 {
        fixture.file(&format!("deep/{number}"), "");
        fixture.file(&format!("z{number}"), "");
    }
    let text = fixture.text("list_dir", json!({"depth": 2, "limit": 7})).await;
    assert!(text.contains("z4") && text.contains("deep/0"), "{text}");
    assert!(!text.contains("deep/1"), "{text}");
    assert!(text.ends_with("[cut at the limit of 7 entries: not all of `deep`]\n"), "{text}");
    let text = fixture.text("list_dir", json!({"depth": 2, "limit": 3})).await;
    assert!(text.ends_with("[cut at the limit of 3 entries: not all of `.`, `deep`]\n"), "{text}");
    let text = fixture.text("list_dir", json!({"depth": 2, "limit": 11})).await;
    assert!(!text.contains("cut"), "{text}");
}

#[tokio::test]
async fn the_limits_of_a_listing_have_defaults_and_maxima() {
    let fixture = Fixture::new();
    for number in 0..=LIST_ENTRIES {
        fs::write(fixture.inside(&format!("{number}")), "").unwrap();
    }
    let text = fixture.text("list_dir", json!({})).await;
    assert!(text.contains(&format!("({LIST_ENTRIES} entries)")), "{text}");
    assert!(!fixture.text("list_dir", json!({"limit": LIST_ENTRIES_MAX})).await.contains("cut"));
    for input in
        [json!({"limit": LIST_ENTRIES_MAX + 1}), json!({"depth": LIST_DEPTH_MAX + 1}), json!({"depth": 0})]
    {
        assert_eq!(fixture.fail("list_dir", input).await.0, FailureCode::InvalidInput);
    }
}

#[tokio::test]
async fn a_tree_with_more_folders_than_descriptors_can_be_listed() {
    let fixture = Fixture::new();
    for number in 0..2000 {
        fs::create_dir(fixture.inside(&format!("{number}"))).unwrap();
    }
    let text = fixture.text("list_dir", json!({"depth": 2, "limit": LIST_ENTRIES_MAX})).await;
    assert!(text.contains("(2000 entries)") && !text.contains("cannot"), "{}", text.lines().last().unwrap());
}

#[tokio::test]
async fn a_search_shows_positions_and_skips_ignored_files() {
    let fixture = Fixture::new();
    fixture.file(".gitignore", "target/\n*.log\n");
    fixture.file("src/a.rs", "one needle\ntwo\n");
    fixture.file("src/b.txt", "needle\n");
    fixture.file("target/out.rs", "needle\n");
    fixture.file("x.log", "needle\n");
    fixture.file(".git/config", "needle\n");
    fixture.file(".hidden", "needle\n");
    fixture.file("binary", b"needle\n\0");
    assert_eq!(
        fixture.text("grep_files", json!({"pattern": "needle"})).await,
        ".hidden:1:needle\nsrc/a.rs:1:one needle\nsrc/b.txt:1:needle\n[3 matching lines in 3 files, of 5 searched]\n"
    );
    let text = fixture.text("grep_files", json!({"pattern": "needle", "include_ignored": true})).await;
    assert!(
        text.contains("target/out.rs:1") && text.contains("x.log:1") && !text.contains(".git/"),
        "{text}"
    );
    // The rules of parent folders apply to a search in a subfolder.
    fixture.file("src/y.log", "needle\n");
    let text = fixture.text("grep_files", json!({"pattern": "needle", "path": "src"})).await;
    assert_eq!(
        text,
        "src/a.rs:1:one needle\nsrc/b.txt:1:needle\n[2 matching lines in 2 files, of 2 searched]\n"
    );
    // A file or folder that the input names is searched even if a rule excludes it.
    let text = fixture.text("grep_files", json!({"pattern": "needle", "path": "target"})).await;
    assert!(text.starts_with("target/out.rs:1:needle\n"), "{text}");
    let text = fixture.text("grep_files", json!({"pattern": "needle", "path": "x.log"})).await;
    assert!(text.starts_with("x.log:1:needle\n"), "{text}");
}

#[tokio::test]
async fn a_search_supports_globs_case_and_context() {
    let fixture = Fixture::new();
    fixture.file("a.rs", "1\n2\nNeedle\n4\n5\n");
    fixture.file("sub/b.rs", "needle\n");
    fixture.file("c.md", "needle\n");
    let text = fixture.text("grep_files", json!({"pattern": "needle", "glob": "*.rs"})).await;
    assert!(text.starts_with("sub/b.rs:1:needle\n[1 matching line in 1 file, of 2 searched]"), "{text}");
    let text = fixture.text("grep_files", json!({"pattern": "needle", "glob": "!*.md"})).await;
    assert!(!text.contains("c.md") && text.contains("sub/b.rs"), "{text}");
    let text = fixture
        .text(
            "grep_files",
            json!({"pattern": "^NEEDLE$", "ignore_case": true, "context": 1, "glob": "/a.rs"}),
        )
        .await;
    assert!(text.starts_with("a.rs-2-2\na.rs:3:Needle\na.rs-4-4\n[1 matching"), "{text}");
    let text = fixture.text("grep_files", json!({"pattern": "absent"})).await;
    assert_eq!(text, "[0 matching lines in 0 files, of 3 searched]\n");
    for input in [
        json!({"pattern": "("}),
        json!({"pattern": "x", "glob": "{a"}),
        json!({"pattern": "x", "context": GREP_CONTEXT + 1}),
        json!({"pattern": "x", "limit": GREP_MATCHES_MAX + 1}),
        json!({"pattern": "x".repeat(GREP_PATTERN_BYTES + 1)}),
        json!({"pattern": "\\w{1000}{1000}"}),
    ] {
        assert_eq!(fixture.fail("grep_files", input.clone()).await.0, FailureCode::InvalidInput, "{input}");
    }
    for pattern in ["\\w{20}", "[a-z]{1000}"] {
        fixture.text("grep_files", json!({"pattern": pattern})).await;
    }
    let (_, message) = fixture.fail("grep_files", json!({"pattern": "\\w{40}"})).await;
    assert!(message.contains("compiles to more than the limit of 1048576 bytes; "), "{message}");
    fixture
        .text("grep_files", json!({"pattern": "x".repeat(GREP_PATTERN_BYTES), "context": GREP_CONTEXT}))
        .await;
}

#[tokio::test]
async fn a_search_ends_at_its_limits_and_reports_it() {
    let fixture = Fixture::new();
    fixture.file("a", "x\n".repeat(GREP_MATCHES));
    let text = fixture.text("grep_files", json!({"pattern": "x"})).await;
    assert!(text.contains(&format!("[{GREP_MATCHES} matching lines")) && !text.contains("more"), "{text}");
    fixture.file("b", "x\n");
    let text = fixture.text("grep_files", json!({"pattern": "x"})).await;
    assert!(text.contains("[there is more: 100 matches are the limit of this call; narrow"), "{text}");

    fixture.file("c", format!("{}\n", "long ".repeat(80)).repeat(2000));
    let text = fixture.text("grep_files", json!({"pattern": "long", "limit": GREP_MATCHES_MAX})).await;
    assert!(text.contains("[there is more: 262144 bytes are the limit"), "{}", text.len());
    assert!(text.len() < GREP_OUTPUT_BYTES + 2000);

    let huge = fs::File::create(fixture.inside("huge")).unwrap();
    std::io::Write::write_all(&mut &huge, &[b'\n'; 9000]).unwrap();
    huge.set_len(GREP_FILE_BYTES as u64 + 1).unwrap();
    let text = fixture.text("grep_files", json!({"pattern": "none of them"})).await;
    assert!(text.contains(&format!("[left out: 1, larger than {GREP_FILE_BYTES} bytes]")), "{text}");
}

#[tokio::test]
async fn a_search_does_not_follow_links() {
    let fixture = Fixture::new();
    fs::write(fixture.outside("secret"), "needle\n").unwrap();
    symlink(fixture.outside("secret"), fixture.inside("file")).unwrap();
    symlink(fixture.outside(""), fixture.inside("folder")).unwrap();
    symlink(".", fixture.inside("loop")).unwrap();
    let fifo = rustix::fs::FileType::Fifo;
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, fixture.inside("fifo"), fifo, mode, 0).unwrap();
    fixture.file("own", "needle\n");
    let text = fixture.text("grep_files", json!({"pattern": "needle"})).await;
    assert_eq!(text, "own:1:needle\n[1 matching line in 1 file, of 1 searched]\n");
    assert_eq!(
        fixture.fail("grep_files", json!({"pattern": "x", "path": "fifo"})).await.0,
        FailureCode::Unsupported
    );
    // A link that the input names is followed, if the policy allows its target.
    let text = fixture.text("grep_files", json!({"pattern": "needle", "path": "loop"})).await;
    assert!(text.starts_with("loop/own:1:needle\n"), "{text}");
}

#[tokio::test]
async fn a_search_ends_at_the_maximum_depth() {
    let fixture = Fixture::new();
    let mut path = fixture.inside("");
    for _ in 0..80 {
        path.push("d");
    }
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("file"), "needle\n").unwrap();
    let text = fixture.text("grep_files", json!({"pattern": "needle"})).await;
    assert!(text.contains("[left out: 1, deeper than 64 levels]"), "{text}");
}

#[tokio::test]
async fn nested_braces_end_neither_the_call_nor_the_process() {
    let fixture = Fixture::new();
    let nested = |depth: usize| format!("{}a{}", "{".repeat(depth), "}".repeat(depth));
    fixture.file("a", "needle\n");
    // As many levels as overflowed the stack, in a rule that fits in the file limit and in one that fits in a line.
    fixture.file(".gitignore", format!("{}\n{}\n*.log\n", nested(14_000), nested(500)));
    fixture.file("b.log", "needle\n");
    let text = fixture.text("grep_files", json!({"pattern": "needle"})).await;
    assert!(text.starts_with("a:1:needle\n[1 matching line in 1 file, of 2 searched]\n"), "{text}");
    assert!(text.contains("[not obeyed: 1 ignore rule, beyond 1024 bytes each, "), "{text}");
    for glob in [nested(14_000), nested(GLOB_BRACE_DEPTH + 1), "{a,b*}".repeat(GLOB_BYTES / 6 + 1)] {
        let (code, message) = fixture.fail("grep_files", json!({"pattern": "needle", "glob": glob})).await;
        assert_eq!(code, FailureCode::InvalidInput);
        assert!(message.contains("glob") && message.contains("the limit of"), "{message}");
    }
    for glob in [nested(GLOB_BRACE_DEPTH), "{a,b*}".repeat(GLOB_BYTES / 6)] {
        fixture.text("grep_files", json!({"pattern": "needle", "glob": glob})).await;
    }
}

#[tokio::test]
async fn rule_files_beyond_the_limit_are_named_unless_rules_are_not_used() {
    let fixture = Fixture::new();
    fixture.file("a", "needle\n");
    fixture.file(".gitignore", "a\n".repeat(IGNORE_FILE_BYTES));
    let note = "[not obeyed: 1 ignore file, larger than 65536 bytes]\n";
    let text = fixture.text("grep_files", json!({"pattern": "needle"})).await;
    assert!(text.starts_with("a:1:needle\n") && text.ends_with(note), "{text}");
    let text = fixture.text("grep_files", json!({"pattern": "needle", "include_ignored": true})).await;
    assert!(text.starts_with("a:1:needle\n") && !text.contains("not obeyed"), "{text}");
}

/// A redactor that knows one secret.
struct OneSecret;

impl Redact for OneSecret {
    fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match text.contains("sk-evil-0") {
            true => Cow::Owned(text.replace("sk-evil-0", "[redacted]")),
            false => Cow::Borrowed(text),
        }
    }

    fn redact_prefix<'t>(&self, text: &'t str) -> (Cow<'t, str>, usize) {
        (self.redact(text), 0)
    }

    fn contains_secret(&self, _: &[u8]) -> bool {
        false
    }
}

#[tokio::test]
async fn a_search_does_not_tell_whether_a_secret_matches() {
    let mut fixture = Fixture::new();
    fixture.context.redact = Arc::new(OneSecret);
    fixture.file("env", "A=1\nKEY=sk-evil-0\n");
    for guess in ["KEY=sk-e", "KEY=(sk-evil-0|none)", "KEY=s"] {
        let text = fixture.text("grep_files", json!({"pattern": guess})).await;
        assert!(text.starts_with("[0 matching lines"), "{guess}: {text}");
    }
    let text = fixture.text("grep_files", json!({"pattern": "KEY=[^s]"})).await;
    assert!(text.starts_with("env:2:KEY=[redacted]\n"), "{text}");
}
