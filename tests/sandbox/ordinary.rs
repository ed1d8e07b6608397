//! Ordinary work in mode workspace.

use std::path::Path;
use std::process::Command;

use crate::world::World;

/// Creates a repository with one commit.
pub(crate) fn create_repository(folder: &Path) {
    let script = "git init -q . && git config user.name t && git config user.email t@example.com && \
         echo a > a && git add a && git commit -qm first";
    let output = Command::new("sh").args(["-c", script]).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Runs a script in mode workspace that must succeed. Returns what it printed.
fn works(world: &World, script: &str) -> String {
    let output = world.run("workspace", script);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {error}\n{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stdout).unwrap()
}

fn write(world: &World, file: &str, text: &str) {
    let file = world.project().join(file);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, text).unwrap();
}

#[test]
fn git_works() {
    let world = World::new();
    let identity = "-c user.name=t -c user.email=t@example.com";
    works(&world, &format!("git init -q . && echo a > a && git add a && git {identity} commit -qm first"));
    let later = format!(
        "echo b > b && git add . && git {identity} commit -qm second && git checkout -qb topic && git mv a c && \
         git {identity} commit -qam third && git checkout -q - && git {identity} merge -q topic && git stash list && \
         git {identity} tag v1 && git gc -q && git log --oneline | wc -l"
    );
    assert_eq!(works(&world, &later), "3\n");
}

#[test]
fn a_rust_project_is_built_and_tested() {
    let world = World::new();
    write(
        &world,
        "Cargo.toml",
        "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n",
    );
    write(
        &world,
        "src/lib.rs",
        "pub fn two() -> i32 { 2 }\n#[test]\nfn counts() { assert_eq!(two(), 2); std::fs::write(std::env::temp_dir().join(\"x\"), \"\").unwrap(); }\n",
    );
    // The home of the developer, which has the toolchain: the home of another user would be hidden from root.
    let mut command = world.command("workspace", "CARGO_HOME=$PWD/.cargo-home cargo test --offline -q 2>&1");
    for name in ["HOME", "PATH", "RUSTUP_HOME"] {
        std::env::var_os(name).map(|value| command.env(name, value));
    }
    let output = command.output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && shown.contains("1 passed"),
        "{shown}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_node_project_runs_its_scripts() {
    let world = World::new();
    write(&world, "package.json", r#"{"name":"tiny","version":"1.0.0","scripts":{"test":"node test.js"}}"#);
    write(
        &world,
        "test.js",
        "const cp = require('child_process'), net = require('net'), os = require('os'), fs = require('fs');\n\
         fs.writeFileSync(os.tmpdir() + '/x', 'x');\n\
         if (cp.execFileSync('echo', ['child']).toString() !== 'child\\n') process.exit(1);\n\
         const server = net.createServer(s => s.end('hello')).listen(0, '127.0.0.1', () => {\n\
           net.connect(server.address().port, '127.0.0.1').on('data', d => { console.log('got ' + d); server.close(); });\n\
         });\n",
    );
    let shown = works(&world, "npm_config_cache=/tmp/npm npm_config_update_notifier=false npm test --silent");
    assert_eq!(shown, "got hello\n");
}

#[test]
fn a_python_project_is_tested() {
    let world = World::new();
    write(&world, "tiny.py", "def two():\n    return 2\n");
    write(
        &world,
        "test_tiny.py",
        "import asyncio, multiprocessing, subprocess, tempfile, threading, unittest\nimport tiny\n\
         class Test(unittest.TestCase):\n\
         \x20   def test_two(self):\n        self.assertEqual(tiny.two(), 2)\n\
         \x20   def test_parts(self):\n\
         \x20       with tempfile.TemporaryDirectory() as folder: open(folder + '/x', 'w').close()\n\
         \x20       self.assertEqual(subprocess.check_output(['echo', 'x']), b'x\\n')\n\
         \x20       asyncio.run(asyncio.sleep(0))\n\
         \x20       thread = threading.Thread(target=lambda: None); thread.start(); thread.join()\n\
         \x20       lock = multiprocessing.Lock()\n        lock.acquire()\n\
         if __name__ == '__main__': unittest.main()\n",
    );
    works(&world, "python3 -m unittest -q");
}

#[test]
fn shells_compilers_and_devices_work() {
    let world = World::new();
    write(&world, "hello.c", "#include <stdio.h>\nint main(void) { puts(\"hello\"); return 0; }\n");
    assert_eq!(
        works(&world, "cc hello.c -o hello && ./hello | tr a-z A-Z | sort | uniq -c | awk '{print $2}'"),
        "HELLO\n"
    );
    assert_eq!(
        works(&world, "echo x > /dev/null && head -c 4 /dev/urandom | wc -c && head -c 3 /dev/zero | wc -c"),
        "4\n3\n"
    );
    assert_eq!(works(&world, "echo x > /dev/shm/a && cat /dev/shm/a && rm /dev/shm/a"), "x\n");
    assert_eq!(
        works(
            &world,
            "test -r /etc/passwd && test -r /proc/cpuinfo && test -d /sys && id -un > /dev/null && echo ok"
        ),
        "ok\n"
    );
    assert_eq!(works(&world, "locale charmap"), "UTF-8\n");
    assert_eq!(
        works(&world, "echo out > /dev/stdout; echo $TMPDIR; mktemp | cut -c1-5"),
        "out\n/tmp\n/tmp/\n"
    );
    let pty = "python3 -c \"import pty; pty.spawn(['/bin/sh', '-c', 'test -t 0 && tty'])\"";
    assert!(works(&world, pty).contains("/dev/pts/0"));
    assert_eq!(works(&world, "mkfifo f; (echo through > f &); cat f"), "through\n");
    assert_eq!(works(&world, "sleep 0.01 & wait; (exit 3) || echo $?; ulimit -c"), "3\n0\n");
}

/// On a terminal the command gets one of its own, and keys, output and exit status go through.
#[test]
fn a_command_on_a_terminal_has_a_terminal() {
    let world = World::new();
    let script = "tty; read line; echo got $line; exit 9";
    let python = "import os, pty, sys\n\
         pid, terminal = pty.fork()\n\
         if pid == 0: os.execv(sys.argv[1], sys.argv[1:])\n\
         os.write(terminal, b'typed\\r')\n\
         shown = b''\n\
         while True:\n\
         \x20   try: piece = os.read(terminal, 1024)\n\
         \x20   except OSError: break\n\
         \x20   if not piece: break\n\
         \x20   shown += piece\n\
         print(shown.decode()); sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n";
    let sandboxed = world.command("workspace", script);
    let mut command = Command::new("python3");
    command.args(["-c", python]).arg(sandboxed.get_program()).args(sandboxed.get_args());
    command
        .current_dir(world.project())
        .env("HOME", world.home())
        .env("PARLOR_HOME", world.home().join("state"));
    let output = command.output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("/dev/console") && shown.contains("got typed"), "{shown}");
    assert_eq!(output.status.code(), Some(9), "{shown}{}", String::from_utf8_lossy(&output.stderr));
}
