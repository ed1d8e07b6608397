//! No output and no file contains a secret, even if a tool, the model or the provider prints it.
#![expect(clippy::unwrap_used, reason = "test helpers panic on failure, as the tests do")]

use std::io::Read;
use std::process::{Child, Stdio};
use std::time::Duration;

use parlor_client::supr::{SuprClient, SuprEvent, SuprSettings};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::aimock::Aimock;
use crate::api_format::ApiFormat;
use crate::home::Home;
use crate::outputs::Outputs;
use crate::scripted_server::{Reply, ScriptedServer};

/// The key of the model; `fixtures.json` repeats it.
const KEY: &str = "kept-s3cret-key-12345";
/// Another stored key; `fixtures.json` repeats it.
const OTHER_KEY: &str = "kept-other-key-67890";
/// The tokens of a stored login.
const LOGIN_TOKENS: [&str; 2] = ["access-t0ken-of-a-login", "refresh-t0ken-of-a-login"];
/// The key in a variable that no model uses yet.
const VARIABLE_KEY: &str = "key-of-a-variable-0";
/// The token of the supr door.
const TOKEN: &str = "token-of-the-door";

/// Passwords in an address: a long one, and one too short to be searched for in texts.
const PASSWORDS: [&str; 2] = ["pa55-of-an-address", "zQ7xK9w"];

/// The interval for polling a file of another process.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A home with secrets of each kind; its model uses one of them.
fn home_with_secrets(mock: &Aimock) -> Home {
    let home = ApiFormat::Chat.home(&mock.url, "auth = \"mine\"\n");
    let settings = std::fs::read_to_string(home.state().join("parlor.toml")).unwrap();
    home.configure("parlor.toml", &settings.replace("SOME_API_KEY", "NO_SUCH_KEY"));
    for (name, key) in [("mine", KEY), ("exa", OTHER_KEY)] {
        std::fs::write(home.folder().join("key.txt"), key).unwrap();
        let file = std::fs::File::open(home.folder().join("key.txt")).unwrap();
        assert!(home.command(&["login", name, "--key"]).stdin(file).status().unwrap().success());
    }
    std::fs::remove_file(home.folder().join("key.txt")).unwrap();
    let login = format!(
        r#"{{"version":1,"access_token":"{}","refresh_token":"{}","obtained_at":1}}"#,
        LOGIN_TOKENS[0], LOGIN_TOKENS[1]
    );
    home.configure("secrets/login-x", &login);
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(home.state().join("secrets/login-x"), private).unwrap();
    home
}

/// Starts `parlor serve`, sends the same messages over supr, and adds its frames, files and log to `outputs`.
async fn serve(home: &Home, outputs: &mut Outputs) -> Child {
    let mut command = home.command(&["serve", "--listen", "127.0.0.1:0", "--no-supex"]);
    command.env("SUPRCLAW_CHANNELS_SUPR_TOKEN", TOKEN).env("PARLOR_LOG", "trace");
    command.env("OPENAI_API_KEY", VARIABLE_KEY).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let log = std::thread::spawn(move || {
        let mut all = Vec::new();
        stderr.read_to_end(&mut all).map(|_| all)
    });
    let file = home.state().join("serve.json");
    let http = loop {
        let served = std::fs::read_to_string(&file).ok().and_then(|text| serde_json::from_str(&text).ok());
        if let Some(address) = served.and_then(|served: Value| served["http"].as_str().map(str::to_owned)) {
            break address;
        }
        assert!(child.try_wait().unwrap().is_none(), "parlor serve exited");
        tokio::time::sleep(POLL_INTERVAL).await;
    };
    let mut client = SuprClient::connect(SuprSettings::new(format!("ws://{http}/supr/ws"), TOKEN))
        .await
        .expect("the server accepts the client");
    for message in ["tell the secrets", "fail with the secret"] {
        client.send(message).await.unwrap();
        loop {
            let event = client.next().await.unwrap();
            outputs.add("frames of supr", format!("{event:?}"));
            if matches!(&event, SuprEvent::Activity(event) if ["run.completed", "run.failed"].contains(&&*event.event_type))
            {
                break;
            }
        }
    }
    outputs.add_files(home.folder());
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    outputs.add("log of serve", log.join().unwrap().unwrap());
    child
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_printed_by_tools_the_model_or_the_provider_are_written_nowhere() {
    let mut mock = Aimock::start();
    let home = home_with_secrets(&mock);
    let mut outputs = Outputs::default();
    for args in [
        &["chat", "--json", "tell the secrets"][..],
        &["chat", "tell the secrets"],
        &["chat", "--json", "fail with the secret"],
        &["chat", "fail with the secret"],
    ] {
        let output = home.run(args);
        outputs.add_command(&format!("{args:?}"), output);
    }
    let stdout: String = String::from_utf8_lossy(&outputs.0[0].1).into_owned();
    let deltas = stdout.lines().filter(|line| line.contains(r#""type":"delta""#));
    assert!(deltas.clone().count() > 5, "the answer must come in several deltas: {stdout}");
    assert!(stdout.contains("It is [secret], and that is all."), "{stdout}");
    let mut child = serve(&home, &mut outputs).await;
    assert!(child.wait().unwrap().success());
    outputs.add_files(home.folder());
    for request in mock.requests() {
        outputs.add("request to the model", request["body"].to_string());
    }

    for file in ["parlor.db", "parlor.db-wal", "serve.json"] {
        assert!(outputs.0.iter().any(|(name, _)| name.ends_with(file)), "{file} must be searched");
    }
    for part in ["stdout of [\"chat\", \"tell", "stderr of [\"chat\", \"fail", "frames of supr", "parlor.db"]
    {
        assert!(
            outputs.find("[secret]").iter().any(|name| name.contains(part)),
            "{part} must have a redacted secret"
        );
    }
    let base64 = base64_simd::STANDARD.encode_to_string(KEY);
    for secret in
        [KEY, OTHER_KEY, LOGIN_TOKENS[0], LOGIN_TOKENS[1], VARIABLE_KEY, base64.trim_end_matches('=')]
    {
        assert_eq!(outputs.find(secret), Vec::<&str>::new(), "{secret} was written");
    }
}

/// Uses a model server whose address has a password, from the settings or from a variable, and searches all outputs.
fn check_address_password(password: &str, is_in_settings: bool) {
    let answer = Reply::Stream(ApiFormat::Chat.text("Hello.") + &ApiFormat::Chat.end());
    let not_found = || Reply::Body(404, "text/html", "<html></html>");
    let (server, home) =
        (ScriptedServer::start(vec![answer, not_found(), not_found(), not_found()]), Home::new());
    let url = format!("{}/v1", server.url).replace("http://", &format!("http://user:{password}@"));
    let settings = "[agents.main]\nkind = \"model\"\nmodel = \"mine\"\n[models.mine]\nprovider = \"openai\"\n\
                    model = \"m\"\napi_key_env = \"NO_SUCH_KEY\"\nbase_url = ";
    let settings = if is_in_settings { format!("{settings}{url:?}\n") } else { String::new() };
    home.configure("parlor.toml", &settings);
    let mut outputs = Outputs::default();
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
        outputs.add_command(&format!("{args:?}"), output);
    }
    std::fs::remove_file(home.state().join("parlor.toml")).unwrap();
    outputs.add_files(home.folder());
    let basic = base64_simd::STANDARD.encode_to_string(format!("user:{password}"));
    assert_eq!(server.header_values("authorization"), vec![Some(format!("Basic {basic}")); 4]);
    assert_eq!(outputs.find(password), Vec::<&str>::new(), "{password} was written");
    assert_eq!(outputs.find("OPENAI_BASE_URL=http"), Vec::<&str>::new(), "commands see the variable");
    let safe_url = format!("{}/v1", server.url);
    let names = ["--json", "stderr of [\"chat", "stderr of [\"models", "doctor", "parlor.db"];
    for part in names.into_iter().chain(is_in_settings.then_some("stdout of [\"settings")) {
        assert!(
            outputs.find(&safe_url).iter().any(|name| name.contains(part)),
            "{part} must have {safe_url}"
        );
    }
}

#[test]
fn a_password_in_an_address_is_sent_and_written_nowhere() {
    for password in PASSWORDS {
        check_address_password(password, true);
        check_address_password(password, false);
    }
}

#[test]
fn a_password_of_an_address_is_redacted_in_tool_output() {
    let (home, [password, _]) = (Home::new(), PASSWORDS);
    let (begin, end) = password.split_at(5);
    let mut command = home.command(&["chat", "--agent", "local", &format!("!printf %s%s {begin} {end}")]);
    let output = command.env("OPENAI_BASE_URL", format!("http://user:{password}@127.0.0.1:1/v1")).output();
    assert_eq!(String::from_utf8(output.unwrap().stdout).unwrap(), "[secret]\n[exit code 0]\n");
}
