//! Nothing that the program writes holds a secret, even if a tool, the model or the provider tells it.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

use std::io::Read;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use parlor_client::supr::{SuprClient, SuprSettings, SuprEvent};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::forms::Form;
use crate::home::Home;
use crate::mock::Mock;
use crate::server::{Deed, Server};

/// The key that the model is asked with; the fixtures know it.
const KEY: &str = "kept-s3cret-key-12345";
/// Another one that is kept; the fixtures know it.
const OTHER: &str = "kept-other-key-67890";
/// What a login would have.
const TOKENS: [&str; 2] = ["access-t0ken-of-a-login", "refresh-t0ken-of-a-login"];
/// What a variable holds that no model asks for yet.
const VARIABLE: &str = "key-of-a-variable-0";
/// What clients of the server must know.
const TOKEN: &str = "token-of-the-door";

/// The password in an address, and one that is too short to be looked for in texts.
const PASSWORDS: [&str; 2] = ["pa55-of-an-address", "zQ7xK9w"];

/// How long between two looks for a file of another process.
const LOOK: Duration = Duration::from_millis(5);

/// Everything that was written, with where.
#[derive(Default)]
struct Written(Vec<(String, Vec<u8>)>);

impl Written {
    /// All files below a folder, but not the store of secrets.
    fn files(&mut self, folder: &Path) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("secrets") {
                self.files(&path);
            } else if path.is_file() {
                self.0.push((path.display().to_string(), std::fs::read(&path).unwrap()));
            }
        }
    }

    fn holds(&self, text: &str) -> Vec<&str> {
        let there = |bytes: &[u8]| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        self.0.iter().filter(|(_, bytes)| there(bytes)).map(|(place, _)| place.as_str()).collect()
    }
}

/// A home with secrets of each kind, whose model asks with one of them.
fn home(mock: &Mock) -> Home {
    let home = Form::Chat.home(&mock.url, "auth = \"mine\"\n");
    let settings = std::fs::read_to_string(home.state().join("parlor.toml")).unwrap();
    home.configure("parlor.toml", &settings.replace("SOME_API_KEY", "NO_SUCH_KEY"));
    for (name, key) in [("mine", KEY), ("exa", OTHER)] {
        std::fs::write(home.folder().join("key.txt"), key).unwrap();
        let file = std::fs::File::open(home.folder().join("key.txt")).unwrap();
        assert!(home.command(&["login", name, "--key"]).stdin(file).status().unwrap().success());
    }
    std::fs::remove_file(home.folder().join("key.txt")).unwrap();
    let login = format!(
        r#"{{"version":1,"access_token":"{}","refresh_token":"{}","obtained_at":1}}"#,
        TOKENS[0], TOKENS[1]
    );
    home.configure("secrets/login-x", &login);
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(home.state().join("secrets/login-x"), private).unwrap();
    home
}

/// Asks a server for the same things, from its start to the last word.
async fn serve(home: &Home, written: &mut Written) -> Child {
    let mut command = home.command(&["serve", "--listen", "127.0.0.1:0", "--no-supex"]);
    command.env("SUPRCLAW_CHANNELS_SUPR_TOKEN", TOKEN).env("PARLOR_LOG", "trace");
    command.env("OPENAI_API_KEY", VARIABLE).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut said = child.stderr.take().unwrap();
    let log = std::thread::spawn(move || {
        let mut all = Vec::new();
        said.read_to_end(&mut all).map(|_| all)
    });
    let file = home.state().join("serve.json");
    let http = loop {
        let served = std::fs::read_to_string(&file).ok().and_then(|text| serde_json::from_str(&text).ok());
        if let Some(address) = served.and_then(|served: Value| served["http"].as_str().map(str::to_owned)) {
            break address;
        }
        assert!(child.try_wait().unwrap().is_none(), "it serves");
        tokio::time::sleep(LOOK).await;
    };
    let mut client =
        SuprClient::connect(SuprSettings::new(format!("ws://{http}/supr/ws"), TOKEN)).await.expect("it listens");
    for message in ["tell the secrets", "fail with the secret"] {
        client.send(message).await.unwrap();
        loop {
            let heard = client.next().await.unwrap();
            written.0.push(("frames of supr".to_owned(), format!("{heard:?}").into_bytes()));
            if matches!(&heard, SuprEvent::Activity(event) if ["run.completed", "run.failed"].contains(&&*event.event_type))
            {
                break;
            }
        }
    }
    written.files(home.folder());
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    written.0.push(("log of serve".to_owned(), log.join().unwrap().unwrap()));
    child
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_tool_the_model_and_the_provider_tell_is_written_nowhere() {
    let mut mock = Mock::start();
    let home = home(&mock);
    let mut written = Written::default();
    for args in [
        &["chat", "--json", "tell the secrets"][..],
        &["chat", "tell the secrets"],
        &["chat", "--json", "fail with the secret"],
        &["chat", "fail with the secret"],
    ] {
        let output = home.run(args);
        written.0.push((format!("stdout of {args:?}"), output.stdout));
        written.0.push((format!("stderr of {args:?}"), output.stderr));
    }
    let told: String = String::from_utf8_lossy(&written.0[0].1).into_owned();
    let deltas = told.lines().filter(|line| line.contains(r#""type":"delta""#));
    assert!(deltas.clone().count() > 5, "the model speaks in pieces: {told}");
    assert!(told.contains("It is [secret], and that is all."), "{told}");
    let mut child = serve(&home, &mut written).await;
    assert!(child.wait().unwrap().success());
    written.files(home.folder());
    for request in mock.requests() {
        written.0.push(("what the model was told".to_owned(), request["body"].to_string().into_bytes()));
    }

    for place in ["parlor.db", "parlor.db-wal", "serve.json"] {
        assert!(written.0.iter().any(|(known, _)| known.ends_with(place)), "{place} is looked at");
    }
    for known in ["stdout of [\"chat\", \"tell", "stderr of [\"chat\", \"fail", "frames of supr", "parlor.db"]
    {
        assert!(written.holds("[secret]").iter().any(|place| place.contains(known)), "{known} had one");
    }
    let base64 = base64_simd::STANDARD.encode_to_string(KEY);
    for secret in [KEY, OTHER, TOKENS[0], TOKENS[1], VARIABLE, base64.trim_end_matches('=')] {
        assert_eq!(written.holds(secret), Vec::<&str>::new(), "{secret} was written");
    }
}

/// Asks a server whose address has a password, which is in the settings or in a variable, and looks at all that is told.
fn ask_with_password(password: &str, is_in_settings: bool) {
    let answer = Deed::Answer(Form::Chat.text("Hello.") + &Form::Chat.end());
    let no = || Deed::Body(404, "text/html", "<html></html>");
    let (server, home) = (Server::start(vec![answer, no(), no(), no()]), Home::new());
    let url = format!("{}/v1", server.url).replace("http://", &format!("http://user:{password}@"));
    let settings = "[agents.main]\nkind = \"model\"\nmodel = \"mine\"\n[models.mine]\nprovider = \"openai\"\n\
                    model = \"m\"\napi_key_env = \"NO_SUCH_KEY\"\nbase_url = ";
    let settings = if is_in_settings { format!("{settings}{url:?}\n") } else { String::new() };
    home.configure("parlor.toml", &settings);
    let mut written = Written::default();
    for args in [
        &["chat", "hello"][..],
        &["chat", "--json", "hello"],
        &["chat", "hello"],
        &["models", "--refresh"],
        &["chat", "--agent", "local", "!env"],
        &["doctor"],
        &["settings"],
    ] {
        let variable = (!is_in_settings).then_some(("OPENAI_BASE_URL", &url));
        let output = home.command(args).envs(variable).output().unwrap();
        written.0.push((format!("stdout of {args:?}"), output.stdout));
        written.0.push((format!("stderr of {args:?}"), output.stderr));
    }
    std::fs::remove_file(home.state().join("parlor.toml")).unwrap();
    written.files(home.folder());
    let basic = base64_simd::STANDARD.encode_to_string(format!("user:{password}"));
    assert_eq!(server.heads("authorization"), vec![Some(format!("Basic {basic}")); 4]);
    assert_eq!(written.holds(password), Vec::<&str>::new(), "{password} was written");
    assert_eq!(written.holds("OPENAI_BASE_URL=http"), Vec::<&str>::new(), "commands have it");
    let told = format!("{}/v1", server.url);
    let places = ["--json", "stderr of [\"chat", "stderr of [\"models", "doctor", "parlor.db"];
    for known in places.into_iter().chain(is_in_settings.then_some("stdout of [\"settings")) {
        assert!(written.holds(&told).iter().any(|place| place.contains(known)), "{known} has {told}");
    }
}

#[test]
fn a_password_in_an_address_is_sent_and_written_nowhere() {
    for password in PASSWORDS {
        ask_with_password(password, true);
        ask_with_password(password, false);
    }
}

#[test]
fn a_password_of_an_address_is_taken_out_of_what_a_tool_prints() {
    let (home, [password, _]) = (Home::new(), PASSWORDS);
    let (begin, end) = password.split_at(5);
    let mut command = home.command(&["chat", "--agent", "local", &format!("!printf %s%s {begin} {end}")]);
    let output = command.env("OPENAI_BASE_URL", format!("http://user:{password}@127.0.0.1:1/v1")).output();
    assert_eq!(String::from_utf8(output.unwrap().stdout).unwrap(), "[secret]\n[exit code 0]\n");
}
