//! Where a long output is cut, no part of a secret remains at the edge: not for the model, in events or on disk.

use super::*;

/// A key whose parts occur nowhere else.
const KEY: &str = "sk-cut-Qw7eRt9yUi3oPa5sDf1gHj8kLz2xCv6bNm4Q0";

/// So many characters of the key must not be visible.
const PART_LEN: usize = 8;

/// Scripts whose output is cut inside the key, which `key.txt` contains.
const SCRIPTS: [(&str, &str); 8] = [
    // The first 32 KiB and the last 32 KiB are shown.
    ("head", r#"{ tool = "shell", args = { command = "head -c 32748 zeros; cat key.txt; cat zeros" } }"#),
    ("tail", r#"{ tool = "shell", args = { command = "cat zeros; cat key.txt; head -c 32748 zeros" } }"#),
    (
        "timeout",
        r#"{ tool = "shell", args = { command = "echo begun; head -c 20 key.txt; exec sleep 60", timeout_ms = 500 } }"#,
    ),
    // `processes` returns pages of 64 KiB, and drops output before the first page.
    (
        "background",
        r#"{ tool = "shell", args = { command = "head -c 65516 zeros; cat key.txt; cat key.txt; touch done; exec sleep 60", background = true } },
           { tool = "shell", args = { command = "until [ -e done ]; do sleep 0.05; done" } },
           { tool = "processes", args = { operation = "read", id = "p1", wait_ms = 60000 } },
           { tool = "processes", args = { operation = "read", id = "p1" } }"#,
    ),
    (
        "split",
        r#"{ tool = "shell", args = { command = "mkfifo go; head -c 20 key.txt; cat go > /dev/null; tail -c +21 key.txt; exec sleep 60", background = true } },
           { tool = "processes", args = { operation = "read", id = "p1", wait_ms = 1000 } },
           { tool = "shell", args = { command = "until [ -p go ]; do sleep 0.05; done; echo . > go" } },
           { tool = "processes", args = { operation = "read", id = "p1", wait_ms = 60000 } },
           { tool = "processes", args = { operation = "stop", id = "p1" } },
           { tool = "processes", args = { operation = "read", id = "p1" } }"#,
    ),
    ("line", r#"{ tool = "read_file", args = { path = "line.txt" } }"#),
    ("grep", r#"{ tool = "grep_files", args = { pattern = "zzz", path = "grep.txt" } }"#),
    (
        "ruby",
        r#"{ tool = "ruby", args = { code = "print 'x' * 32748, File.read('key.txt'), 'y' * 100_000; nil" } }"#,
    ),
];

#[test]
fn a_cut_output_shows_no_part_of_a_secret() {
    let mut leaks = Vec::new();
    for (name, steps) in SCRIPTS {
        let home = Home::new();
        let file = |name: &str, text: &str| std::fs::write(home.folder().join(name), text).unwrap();
        file("key.txt", KEY);
        file("zeros", &"0".repeat(100_000));
        file("line.txt", &format!("{}{KEY}\n", "x".repeat(1980)));
        file("grep.txt", &format!("zzz{}{KEY}\n", "x".repeat(477)));
        let key = std::fs::File::open(home.folder().join("key.txt")).unwrap();
        assert!(home.command(&["login", "exa", "--key"]).stdin(key).status().unwrap().success());
        home.configure(
            "parlor.toml",
            "default_agent = \"s\"\nagents.s = { kind = \"script\", file = \"s.toml\" }\n",
        );
        home.configure("s.toml", &format!("[otherwise]\nsteps = [\n{steps}\n]\n"));
        let output = home.run(&["chat", "--json", "go"]);
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert!(stdout.contains("tool"), "{name}: {stdout} {}", String::from_utf8_lossy(&output.stderr));
        let database = ["parlor.db", "parlor.db-wal"].map(|file| std::fs::read(home.state().join(file)));
        let database =
            String::from_utf8_lossy(&database.into_iter().flatten().flatten().collect::<Vec<u8>>())
                .into_owned();
        // Long events are deflated in the database.
        let events = home.prints(&["replay", &home.last_session(), "--json"]);
        for (source, text) in [("stdout", &stdout), ("the database", &database), ("an event", &events)] {
            let mut parts = KEY.as_bytes().windows(PART_LEN).map(|part| std::str::from_utf8(part).unwrap());
            if let Some(at) = parts.find_map(|part| text.find(part)) {
                let (from, to) =
                    (text.floor_char_boundary(at.saturating_sub(20)), text.ceil_char_boundary(at + 60));
                leaks.push(format!("{name}: {source} has {:?}", text.get(from..to)));
            }
        }
    }
    assert!(leaks.is_empty(), "{leaks:#?}");
}
