//! The tools `read_file`, `write_file` and `edit_file` on real files.

mod common;

use parlor_vocab::FailureCode;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use common::{Fixture, names};
use parlor_tools::{EDIT_FILE_BYTES, IMAGE_BYTES, NEW_FOLDERS, READ_LINES, READ_LINES_MAX};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use serde_json::json;

fn fifo(fixture: &Fixture) {
    mknodat(CWD, fixture.inside("fifo"), FileType::Fifo, Mode::from_raw_mode(0o600), makedev(0, 0))
        .expect("a FIFO");
}

#[tokio::test]
async fn lines_are_numbered_and_the_end_of_the_file_is_marked() {
    let fixture = Fixture::new();
    fixture.file("a", "one\ntwo\nthree");
    let text = fixture.text("read_file", json!({"path": "a"})).await;
    assert_eq!(text, "     1\tone\n     2\ttwo\n     3\tthree\n[end of `a`, 3 lines]\n");
    fixture.file("empty", "");
    assert_eq!(fixture.text("read_file", json!({"path": "empty"})).await, "[`empty` is empty]");
}

#[tokio::test]
async fn a_range_names_the_next_offset() {
    let fixture = Fixture::new();
    fixture.file("a", "line\n".repeat(10));
    let text = fixture.text("read_file", json!({"path": "a", "offset": 4, "limit": 2})).await;
    assert_eq!(
        text,
        "     4\tline\n     5\tline\n[lines 4 to 5; `a` has 10 lines; go on with \"offset\": 6]\n"
    );
    let (code, message) = fixture.fail("read_file", json!({"path": "a", "offset": 11})).await;
    assert_eq!(
        (code, message.as_str()),
        (FailureCode::InvalidInput, "`a` has 10 lines; there is no line 11")
    );
}

#[tokio::test]
async fn the_number_of_lines_has_a_default_and_a_maximum() {
    let fixture = Fixture::new();
    fixture.file("a", "x\n".repeat(READ_LINES_MAX + 1));
    let lines = |text: String| text.lines().filter(|line| line.ends_with("\tx")).count();
    assert_eq!(lines(fixture.text("read_file", json!({"path": "a"})).await), READ_LINES);
    let most = json!({"path": "a", "limit": READ_LINES_MAX});
    assert_eq!(lines(fixture.text("read_file", most).await), READ_LINES_MAX);
    let (code, message) = fixture.fail("read_file", json!({"path": "a", "limit": READ_LINES_MAX + 1})).await;
    assert_eq!(code, FailureCode::InvalidInput);
    assert_eq!(message, "`limit` must be from 1 to 10000, not 10001");
}

#[tokio::test]
async fn invalid_utf8_is_shown_as_replacement_characters() {
    let fixture = Fixture::new();
    fixture.file("latin", b"caf\xe9\n");
    let text = fixture.text("read_file", json!({"path": "latin"})).await;
    assert!(text.starts_with("     1\tcaf\u{fffd}\n[some bytes are not UTF-8"), "{text}");
}

#[tokio::test]
async fn images_are_returned_unchanged_up_to_a_limit() {
    let fixture = Fixture::new();
    let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
    bytes.resize(IMAGE_BYTES, 7);
    // The kind is detected from the bytes, not from the name.
    fixture.file("picture.txt", &bytes);
    let output = fixture.call("read_file", json!({"path": "picture.txt"})).await.unwrap();
    assert_eq!(output.text, format!("`picture.txt`: image/png, {IMAGE_BYTES} bytes"));
    assert_eq!(output.images.len(), 1);
    assert_eq!((output.images[0].mime.as_str(), &output.images[0].bytes), ("image/png", &bytes));
    bytes.push(7);
    fixture.file("picture.txt", &bytes);
    let (code, message) = fixture.fail("read_file", json!({"path": "picture.txt"})).await;
    assert_eq!(code, FailureCode::TooLarge);
    assert_eq!(message, format!("`picture.txt` is larger than the limit of {IMAGE_BYTES} bytes for images"));
}

#[tokio::test]
async fn files_that_are_not_text_are_refused_without_blocking() {
    let fixture = Fixture::new();
    fifo(&fixture);
    fixture.file("program", b"\x7fELF\x02\x01\x01\0\0\0");
    fs::create_dir(fixture.inside("folder")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(fixture.inside("socket")).unwrap();
    for (path, words) in [
        ("program", "`program` is an ELF program or library of 10 bytes, which cannot be shown as text"),
        ("folder", "`folder` is a folder; list_dir shows what is in it"),
        ("fifo", "`fifo` is a FIFO, not a file"),
        ("socket", "`socket` is a socket, not a file"),
    ] {
        assert_eq!(
            fixture.fail("read_file", json!({"path": path})).await,
            (FailureCode::Unsupported, words.to_owned())
        );
    }
    for path in ["fifo", "folder", "socket"] {
        let write = json!({"path": path, "content": "x"});
        assert_eq!(fixture.fail("write_file", write).await.0, FailureCode::Unsupported, "{path}");
        let edit = json!({"path": path, "old_text": "x", "new_text": "y"});
        assert_eq!(fixture.fail("edit_file", edit).await.0, FailureCode::Unsupported, "{path}");
    }
    let mut context = fixture.context.clone();
    context.policy = std::sync::Arc::new(parlor_tools::Policy::new(["/dev"]).unwrap());
    let failure = fixture.toolbox.call("read_file", r#"{"path":"/dev/zero"}"#, &context).await.unwrap_err();
    assert_eq!(failure.message, "`/dev/zero` is a device, not a file");
}

#[tokio::test]
async fn writing_makes_folders_and_leaves_no_temporary_files() {
    let fixture = Fixture::new();
    let text = fixture.text("write_file", json!({"path": "a/b/c.txt", "content": "häh"})).await;
    assert_eq!(text, "wrote 4 bytes to `a/b/c.txt` (new file)");
    assert_eq!(fixture.content("a/b/c.txt"), "häh");
    let text = fixture.text("write_file", json!({"path": "a/b/c.txt", "content": ""})).await;
    assert_eq!(text, "wrote 0 bytes to `a/b/c.txt` (content replaced)");
    assert_eq!(fixture.names("a/b"), ["c.txt"]);
}

#[tokio::test]
async fn a_replaced_file_keeps_its_mode_and_owner() {
    let fixture = Fixture::new();
    let path = fixture.file("script", "old");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4751)).unwrap();
    let before = fs::metadata(&path).unwrap();
    fixture.text("write_file", json!({"path": "script", "content": "new"})).await;
    let after = fs::metadata(&path).unwrap();
    assert_eq!(after.mode() & 0o7777, 0o4751);
    assert_eq!((after.uid(), after.gid()), (before.uid(), before.gid()));
    assert_ne!(after.ino(), before.ino(), "the file was replaced, not overwritten");

    fixture.file("usual", "");
    fixture.text("write_file", json!({"path": "new", "content": ""})).await;
    let mode = |name| fs::metadata(fixture.inside(name)).unwrap().mode();
    assert_eq!(mode("new"), mode("usual"));
}

#[tokio::test]
async fn an_open_reader_keeps_the_old_content() {
    let fixture = Fixture::new();
    let path = fixture.file("a", "old");
    let mut reader = fs::File::open(&path).unwrap();
    fixture.text("write_file", json!({"path": "a", "content": "entirely new"})).await;
    let mut text = String::new();
    std::io::Read::read_to_string(&mut reader, &mut text).unwrap();
    assert_eq!(text, "old");
    assert_eq!(fixture.content("a"), "entirely new");
}

#[tokio::test]
async fn a_write_that_fails_leaves_the_old_file_and_nothing_else() {
    let fixture = Fixture::new();
    fixture.file("a", "old");
    // The temporary file can be created, but the rename to this long name fails.
    let name = "n".repeat(256);
    assert_eq!(
        fixture.fail("write_file", json!({"path": name, "content": "x"})).await.0,
        FailureCode::InvalidInput
    );
    assert_eq!(fixture.names(""), ["a"]);
    let (code, message) = fixture.fail("write_file", json!({"path": "a/b", "content": "x"})).await;
    assert_eq!(code, FailureCode::NotFound, "{message}");
    assert_eq!(fixture.content("a"), "old");
}

#[tokio::test]
async fn a_cancelled_write_does_not_happen() {
    let fixture = Fixture::new();
    fixture.context.cancel.cancel();
    let (code, _) = fixture.fail("write_file", json!({"path": "a", "content": "x"})).await;
    assert_eq!(code, FailureCode::Cancelled);
    for (tool, input) in [
        ("read_file", json!({"path": "a"})),
        ("list_dir", json!({})),
        ("grep_files", json!({"pattern": "x"})),
        ("shell", json!({"command": "touch b"})),
    ] {
        assert_eq!(fixture.fail(tool, input).await.0, FailureCode::Cancelled, "{tool}");
    }
    assert!(fixture.names("").is_empty());
}

#[tokio::test]
async fn an_edit_replaces_exactly_what_it_names() {
    let fixture = Fixture::new();
    fixture.file("a", "one\ntwo\nthree\ntwo\n");
    let text =
        fixture.text("edit_file", json!({"path": "a", "old_text": "one\ntwo", "new_text": "1\n2"})).await;
    assert_eq!(text, "replaced 1 match in `a`, at line 1");
    assert_eq!(fixture.content("a"), "1\n2\nthree\ntwo\n");
    // The new text is literal, and it may be empty.
    fixture.text("edit_file", json!({"path": "a", "old_text": "three\n", "new_text": "$1\\n\n"})).await;
    fixture.text("edit_file", json!({"path": "a", "old_text": "two\n", "new_text": ""})).await;
    assert_eq!(fixture.content("a"), "1\n2\n$1\\n\n");
}

#[tokio::test]
async fn more_than_one_match_needs_count_or_replace_all() {
    let fixture = Fixture::new();
    fixture.file("a", "x\ny\nx\nx\n");
    let edit = |more: serde_json::Value| {
        let mut input = json!({"path": "a", "old_text": "x", "new_text": "z"});
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        input
    };
    let (code, message) = fixture.fail("edit_file", edit(json!({}))).await;
    assert_eq!(code, FailureCode::EditMismatch);
    assert_eq!(
        message,
        "`old_text` is in `a` 3 times, at lines 1, 3, 4; give more of the text around it, or set `count` to 3 \
         to replace all"
    );
    let (_, message) = fixture.fail("edit_file", edit(json!({"count": 2}))).await;
    assert!(message.ends_with("3 times, at lines 1, 3, 4; `count` says 2"), "{message}");
    assert_eq!(fixture.content("a"), "x\ny\nx\nx\n");
    fixture.text("edit_file", edit(json!({"count": 3}))).await;
    assert_eq!(fixture.content("a"), "z\ny\nz\nz\n");
    fixture.file("a", "x x x x");
    fixture.text("edit_file", edit(json!({"replace_all": true}))).await;
    assert_eq!(fixture.content("a"), "z z z z");
}

#[tokio::test]
async fn an_edit_without_a_match_explains_the_difference() {
    let fixture = Fixture::new();
    fixture.file("a", "fn f() {\n\treturn;\n}\n");
    let (code, message) = fixture
        .fail("edit_file", json!({"path": "a", "old_text": "fn f() {\n    return;", "new_text": ""}))
        .await;
    assert_eq!(code, FailureCode::EditMismatch);
    assert_eq!(
        message,
        "`old_text` is not in `a`: the text differs in whitespace at line 2, which is \"\\treturn;\""
    );
    for (old, new) in [("", "x"), ("same", "same")] {
        let input = json!({"path": "a", "old_text": old, "new_text": new});
        assert_eq!(fixture.fail("edit_file", input).await.0, FailureCode::InvalidInput);
    }
    let input = json!({"path": "a", "old_text": "f", "new_text": "g", "count": 0});
    assert_eq!(fixture.fail("edit_file", input).await.0, FailureCode::InvalidInput);
    fixture.file("latin", b"caf\xe9");
    let input = json!({"path": "latin", "old_text": "caf", "new_text": "x"});
    assert_eq!(fixture.fail("edit_file", input).await.0, FailureCode::Unsupported);
}

#[tokio::test]
async fn a_file_that_is_too_large_to_edit_is_refused() {
    let fixture = Fixture::new();
    let file = fs::File::create(fixture.inside("large")).unwrap();
    file.set_len(EDIT_FILE_BYTES as u64 + 1).unwrap();
    let input = json!({"path": "large", "old_text": "a", "new_text": "b"});
    assert_eq!(fixture.fail("edit_file", input).await.0, FailureCode::TooLarge);
    // A small file that would become very large.
    fixture.file("bomb", "a".repeat(100_000));
    let input = json!({"path": "bomb", "old_text": "a", "new_text": "b".repeat(10_000), "replace_all": true});
    let (code, message) = fixture.fail("edit_file", input).await;
    assert_eq!(code, FailureCode::TooLarge, "{message}");
    assert_eq!(fixture.content("bomb").len(), 100_000);
}

#[tokio::test]
async fn an_edit_goes_through_a_link_and_keeps_it() {
    let fixture = Fixture::new();
    fixture.file("real/a", "old\n");
    symlink("real/a", fixture.inside("link")).unwrap();
    fixture.text("edit_file", json!({"path": "link", "old_text": "old", "new_text": "new"})).await;
    assert_eq!(fixture.content("real/a"), "new\n");
    assert_eq!(names(&fixture.inside("real")), ["a"]);
    assert!(fs::symlink_metadata(fixture.inside("link")).unwrap().is_symlink());
}

#[tokio::test]
async fn the_number_of_new_folders_is_limited_and_none_is_left() {
    let fixture = Fixture::new();
    let path = |folders: usize| format!("{}file", "d/".repeat(folders));
    let (code, message) =
        fixture.fail("write_file", json!({"path": path(NEW_FOLDERS + 1), "content": "x"})).await;
    assert_eq!(code, FailureCode::InvalidInput);
    assert!(message.contains("needs 65 new folders, more than the limit of 64; "), "{message}");
    assert!(fixture.names("").is_empty());
    fixture.text("write_file", json!({"path": path(NEW_FOLDERS), "content": "x"})).await;
    // Folders that exist do not count.
    fixture.text("write_file", json!({"path": path(2 * NEW_FOLDERS), "content": "x"})).await;
}
