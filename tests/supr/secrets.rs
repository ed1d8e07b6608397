//! What lets clients in is taken out of what agents show, as keys of providers are.

use std::os::unix::fs::OpenOptionsExt;

use serde_json::json;

use crate::client::Client;
use crate::server::{Server, TOKEN, command};

/// What the browser of somebody who has shown the token sends from then on.
async fn cookie(server: &Server, token: &str) -> String {
    let claim = format!("http://{}/api/supr/claim", server.http);
    let body = json!({ "token": token }).to_string();
    let answer = reqwest::Client::new().post(claim).body(body).send().await.unwrap();
    let given = answer.headers().get("set-cookie").expect("a cookie").to_str().unwrap();
    given.split_once('=').unwrap().1.split(';').next().unwrap().to_owned()
}

/// All that is told of a run that prints `text`.
async fn shown(server: &Server, client: &mut Client, text: &str) -> String {
    let file = server.home.join("printed.txt");
    std::fs::write(&file, text).unwrap();
    client.say(&format!("!cat {}", file.display())).await;
    let mut told = String::new();
    loop {
        let frame = client.next().await.unwrap();
        told.push_str(&frame.to_string());
        if frame["event_type"] == "run.completed" {
            return told;
        }
    }
}

#[tokio::test]
async fn tokens_old_and_new_and_cookies_are_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = std::fs::OpenOptions::new();
    let stored =
        options.write(true).create_new(true).mode(0o600).open(folder.path().join("supr.json")).unwrap();
    serde_json::to_writer(stored, &json!({ "token": TOKEN })).unwrap();
    let mut command = command(folder.path());
    command.env_remove("SUPRCLAW_CHANNELS_SUPR_TOKEN").current_dir(folder.path());
    let server = Server::spawn(command, folder.path()).unwrap();
    let mut client = Client::connect(server.http, "session_id=s&stream=1").await;
    let old_cookie = cookie(&server, TOKEN).await;
    // Another process makes a new one, and nobody has asked this server for anything since.
    let new = server.prints(&["token", "--rotate"]).trim().to_owned();
    let told = shown(&server, &mut client, &format!("one {TOKEN} two {new} three {old_cookie} four\n")).await;
    for secret in [TOKEN, &new, &old_cookie] {
        assert!(!told.contains(secret), "{told}");
    }
    assert!(told.contains("one [secret] two [secret] three [secret] four"), "{told}");
    let new_cookie = cookie(&server, &new).await;
    let told = shown(&server, &mut client, &format!("five {new_cookie} six\n")).await;
    assert!(told.contains("five [secret] six") && !told.contains(&new_cookie), "{told}");
}
