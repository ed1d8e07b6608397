//! A login with a browser, whose address everybody can read from `/proc` while the browser is started.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::Stdio;

use crate::http::ask;
use crate::provider::serve;
use crate::server::Place;
use crate::users::{OWNER, ROOT, STRANGER, as_user};

/// A provider that gives a token for any code, and tells the code in it.
fn provider() -> SocketAddr {
    serve("application/json", |form| {
        let code = form.split('&').find_map(|pair| pair.strip_prefix("code=")).unwrap();
        format!("{{\"access_token\":\"token-for-{code}\",\"token_type\":\"Bearer\"}}")
    })
}

/// Where the callback is, and the state that it waits for.
fn read_address(url: &str) -> (SocketAddr, String) {
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
        let Some(place) = Place::new(&settings) else { return };
        let mut command = place.command(OWNER, &["login", "x", "--browser", "--no-open"]);
        let mut login = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(login.stdout.take().unwrap());
        let mut url = String::new();
        said.read_line(&mut url).unwrap();
        let (callback, state) = read_address(url.trim());
        for path in ["/callback", parlor_auth::CANCEL_PATH] {
            let line = format!("GET {path}?code=strangers&state={state}");
            let answer = as_user(STRANGER, || ask(callback, &line, "", ""));
            assert_eq!(answer.status, 403, "{answer:?}");
            assert!(answer.body.contains("another user"), "{answer:?}");
        }
        // It goes on.
        let line = format!("GET /callback?code=owners&state={state}");
        assert_eq!(as_user(user, || ask(callback, &line, "", "")).status, 200);
        let done = login.wait_with_output().unwrap();
        assert!(done.status.success(), "{done:?}");
        let kept = std::fs::read_to_string(place.home.join("secrets/login-x")).unwrap();
        assert!(kept.contains("token-for-owners"), "{kept}");
    }
}
