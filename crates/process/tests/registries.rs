//! Package managers in a sandbox get packages of a registry whose host a rule allows, through the sandbox's proxy, without a
//! question. The registry is on this machine.

#![expect(clippy::unwrap_used, reason = "a test helper that cannot go on panics, as the test would")]
#![expect(clippy::disallowed_methods, reason = "the registry is a program of its own")]

mod common;

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use common::script;
use parlor_process::{
    ChildEvent, ProcessNumber, ProxyAddresses, ProxyDecision, ProxyRules, Sandbox, SandboxNetwork, spawn_in,
};
use parlor_vocab::{PolicyMode, ProcessExit, StartProcess};
use tokio::sync::mpsc;

/// Allows `registry.test`, which is this machine, and notes which hosts were asked for.
#[derive(Debug, Default)]
struct RegistryRule(Mutex<Vec<String>>);

impl ProxyRules for RegistryRule {
    fn allows<'a>(&'a self, host: &'a str, _: u16) -> ProxyDecision<'a> {
        self.0.lock().unwrap().push(host.to_owned());
        Box::pin(async move { host == "registry.test" })
    }

    fn resolve<'a>(&'a self, _: &'a str, port: u16) -> ProxyAddresses<'a> {
        Box::pin(async move { Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]) })
    }

    fn allows_address(&self, _: IpAddr) -> bool {
        true
    }
}

/// A web server for the files of a folder.
struct Registry {
    server: Child,
    port: u16,
    files: tempfile::TempDir,
}

impl Registry {
    /// Starts it with the files that `build` creates in the current folder, in which `$PORT` is its port.
    fn start(build: &str) -> Self {
        let files = tempfile::tempdir().unwrap();
        let mut server = Command::new("python3")
            .args(["-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory"])
            .arg(files.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port =
            line.split("port ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap().parse().unwrap();
        let registry = Self { server, port, files };
        registry.build(build);
        registry
    }

    fn build(&self, script: &str) {
        let mut shell = Command::new("sh");
        shell.args(["-ec", script]).current_dir(self.files.path()).env("PORT", self.port.to_string());
        let output = shell.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Runs a script in a sandbox whose rules allow the registry. Returns its output, and the hosts that it asked for.
async fn run(project: &Path, registry: &Registry, text: &str) -> (String, Vec<String>) {
    let rule = Arc::new(RegistryRule::default());
    let home = std::env::home_dir();
    let mut sandbox = Sandbox::new(PolicyMode::Workspace, project, home.as_deref());
    sandbox.network = SandboxNetwork::Proxy(Arc::clone(&rule) as Arc<dyn ProxyRules>);
    let start = script(&format!("exec 2>&1; set -e; {text}"));
    let names = ["PATH", "HOME", "RUSTUP_HOME"];
    let inherited = names.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
    let own = [
        ("PORT", registry.port.to_string()),
        ("CARGO_HOME", project.join("cargo-home").display().to_string()),
        ("npm_config_cache", "/tmp/npm".to_owned()),
        // Every command would ask for a newer npm.
        ("npm_config_update_notifier", "false".to_owned()),
    ];
    let env = inherited.chain(own.map(|(name, value)| (name.to_owned(), value))).collect();
    let start = StartProcess { env, folder: project.to_owned(), ..start };
    let (sender, mut reports) = mpsc::channel(4);
    let _process = spawn_in(Some(&sandbox), &start, ProcessNumber(1), sender).unwrap();
    let (mut output, mut exit) = (Vec::new(), None);
    while let Some(report) = reports.recv().await {
        match report.event {
            ChildEvent::Output { bytes, .. } => output.extend(bytes),
            ChildEvent::Exited(code) => exit = Some(code),
            ChildEvent::WriteAccepted(_) | ChildEvent::WriteLost(_) | ChildEvent::LeaderExited(_) => {}
        }
    }
    let shown = String::from_utf8(output).unwrap();
    assert_eq!(exit, Some(ProcessExit::Code(0)), "{shown}");
    let asked = std::mem::take(&mut *rule.0.lock().unwrap());
    (shown, asked)
}

#[tokio::test]
async fn cargo_builds_with_a_crate_of_an_allowed_registry() {
    let registry = Registry::start(
        r#"
mkdir -p index/ti/ny crates tiny-1.0.0/src
printf '[package]\nname = "tiny"\nversion = "1.0.0"\nedition = "2021"\n' > tiny-1.0.0/Cargo.toml
echo 'pub fn two() -> i32 { 2 }' > tiny-1.0.0/src/lib.rs
tar czf crates/tiny-1.0.0.crate tiny-1.0.0
sum=$(sha256sum crates/tiny-1.0.0.crate | cut -d' ' -f1)
printf '{"dl":"http://registry.test:%s/crates/{crate}-{version}.crate"}' "$PORT" > index/config.json
printf '{"name":"tiny","vers":"1.0.0","deps":[],"cksum":"%s","features":{},"yanked":false}\n' "$sum" > index/ti/ny/tiny
"#,
    );
    let project = tempfile::tempdir().unwrap();
    let build = r#"
mkdir -p src .cargo
printf '[registries.test]\nindex = "sparse+http://registry.test:%s/index/"\n' "$PORT" > .cargo/config.toml
printf '[package]\nname = "user"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\ntiny = { version = "1", registry = "test" }\n[workspace]\n' > Cargo.toml
echo '#[test] fn counts() { assert_eq!(tiny::two(), 2); }' > src/lib.rs
cargo test -q
"#;
    let (shown, asked) = run(project.path(), &registry, build).await;
    assert!(shown.contains("1 passed"), "{shown}");
    assert!(asked.iter().all(|host| host == "registry.test") && !asked.is_empty(), "{asked:?}");
}

#[tokio::test]
async fn npm_installs_a_package_of_an_allowed_registry() {
    let registry = Registry::start(
        r#"
mkdir package files
echo '{"name":"tiny","version":"1.0.0","main":"main.js"}' > package/package.json
echo 'exports.two = 2' > package/main.js
tar czf files/tiny-1.0.0.tgz package
printf '{"name":"tiny","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"tiny","version":"1.0.0","dist":{"tarball":"http://registry.test:%s/files/tiny-1.0.0.tgz"}}}}' "$PORT" > tiny
"#,
    );
    let project = tempfile::tempdir().unwrap();
    let install = r#"
echo '{"name":"user","version":"1.0.0","scripts":{"test":"node test.js"}}' > package.json
echo 'console.log(require("tiny").two + 40)' > test.js
npm install --registry "http://registry.test:$PORT/" --no-audit --no-fund --loglevel=error tiny
npm test --silent
"#;
    let (shown, asked) = run(project.path(), &registry, install).await;
    assert!(shown.ends_with("42\n"), "{shown}");
    assert!(asked.iter().all(|host| host == "registry.test") && !asked.is_empty(), "{asked:?}");
}
