//! A login with a browser. Every user can read its URL, with the state, from `/proc` while the browser starts.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::Stdio;

use crate::http::send_request;
use crate::mock_provider::serve;
use crate::server::Installation;
use crate::users::{OTHER_USER, OWNER, ROOT, as_user};

/// A provider that accepts any code, and whose token contains the code.
fn provider() -> SocketAddr {
    serve("application/json", |form| {
        let code = form.split('&').find_map(|pair| pair.strip_prefix("code=")).unwrap();
        format!("{{\"access_token\":\"token-for-{code}\",\"token_type\":\"Bearer\"}}")
    })
}

/// The address of the callback and the expected state, from an authorize URL.
fn callback_and_state(url: &str) -> (SocketAddr, String) {
    let url = reqwest::Url::parse(url).unwrap();
    let value = |wanted| url.query_pairs().find(|(name, _)| name == wanted).unwrap().1.into_owned();
    let callback = reqwest::Url::parse(&value("redirect_uri")).unwrap();
    (SocketAddr::new(callback.host_str().unwrap().parse().unwrap(), callback.port().unwrap()), value("state"))
}

#[test]
fn another_user_who_knows_the_state_cannot_forge_or_cancel_a_login() {
    for user in [OWNER, ROOT] {
        let provider = provider();
        let settings = format!(
            "[auth.x]\nclient_id = \"us\"\nauthorize_url = \"http://{provider}/authorize\"\n\
             token_url = \"http://{provider}/token\"\n"
        );
        let Some(installation) = Installation::new(&settings) else { return };
        let mut command = installation.command(OWNER, &["login", "x", "--browser", "--no-open"]);
        let mut login = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(login.stdout.take().unwrap());
        let mut url = String::new();
        stdout.read_line(&mut url).unwrap();
        let (callback, state) = callback_and_state(url.trim());
        for path in ["/callback", parlor_auth::CANCEL_PATH] {
            let line = format!("GET {path}?code=other&state={state}");
            let response = as_user(OTHER_USER, || send_request(callback, &line, "", ""));
            assert_eq!(response.status, 403, "{response:?}");
            assert!(response.body.contains("another user"), "{response:?}");
        }
        // The login still waits for the owner.
        let line = format!("GET /callback?code=owners&state={state}");
        assert_eq!(as_user(user, || send_request(callback, &line, "", "")).status, 200);
        let done = login.wait_with_output().unwrap();
        assert!(done.status.success(), "{done:?}");
        let stored = std::fs::read_to_string(installation.home.join("secrets/login-x")).unwrap();
        assert!(stored.contains("token-for-owners"), "{stored}");
    }
}
